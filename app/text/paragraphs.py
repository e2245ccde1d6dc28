"""Paragraphs of a text that is wrapped by hand."""


def reflow(value: str) -> str:
    """Join the lines of each paragraph; indented lines and lists stay as they are."""
    out: list[str] = []
    for line in value.strip().splitlines():
        joins = (
            bool(out)
            and bool(line)
            and out[-1]
            and not line.startswith((" ", "-", "*"))
            and not out[-1].startswith(" ")
        )
        if joins:
            out[-1] += " " + line
        else:
            out.append(line)
    return "\n".join(out)
