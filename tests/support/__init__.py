"""Parts that tests of several folders share."""
