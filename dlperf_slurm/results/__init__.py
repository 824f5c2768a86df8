"""Run directories -> what came of each case, compared, remembered, beside published figures."""
