#!/bin/sh
# Install ddpwizard without a network, into an environment of its own: sh install.sh [DIRECTORY]
# Or into an environment of yours: pip install --no-index --find-links wheels ddpwizard
set -eu
here=$(cd "$(dirname "$0")" && pwd)
into=${1:-$HOME/.local/share/ddpwizard}
version=$(basename "$here" | sed -n 's/.*-python\([0-9.]*\)-.*/\1/p')
python=${PYTHON:-$(command -v "python$version" || command -v python3)}
"$python" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$version')" || {
    echo "this bundle is for Python $version, $python is another one: set PYTHON" >&2
    exit 2
}
"$python" -m venv "$into"
"$into/bin/python" -m pip install --quiet --disable-pip-version-check --no-index --find-links "$here/wheels" ddpwizard
echo "$into/bin/ddpwizard"
