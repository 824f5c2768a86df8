"""What others published: their logs, figures and table layouts. The rest imports none of it."""
