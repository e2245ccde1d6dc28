"""Hook of mkdocs: add the generated pages to those of this directory."""

import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))

from site_pages import generated_pages


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Return the files of the site with the generated ones."""
    for path, content in generated_pages().items():
        files.append(File.generated(config, path, content=content))
    return files
