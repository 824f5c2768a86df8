"""The frameworks' managed environments: made from pins, and checked."""
