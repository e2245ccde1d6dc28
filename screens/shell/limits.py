"""The smallest terminal the screens fit into."""

LEAST_COLUMNS, LEAST_ROWS = 60, 20
