"""The smallest terminal that the screens fit in."""

LEAST_COLUMNS, LEAST_ROWS = 60, 20
