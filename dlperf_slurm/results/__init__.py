"""Run directories -> results of each case, comparisons of runs, histories, published figures."""
