"""The rows of the table, as they come from several sources."""

SOURCES = [
    {"width": 1.0, "height": 2.0, "area": 2.0},
    {"width": 2.0, "height": 1.5, "area": 3.0},
    {"width": 0.5, "height": 4.0, "area": 2.0},
    {"width": 3.0, "area": 3.0},
    {"width": 1.5, "height": 2.0, "area": 3.0},
    {"width": 2.5, "height": 1.0, "area": 2.5},
]


def read_rows():
    return [dict(source) for source in SOURCES]
