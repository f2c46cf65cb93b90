# Environment of the frameworks, in $home: made by whoever runs this first, and sourced by run.sh.
#
# Needs Python 3.12 or newer and, the first time, the Python registry (6 GB, two minutes); where either is missing it says so and ends.
# The environment is kept in $XDG_CACHE_HOME/meshwright (else ~/.cache/meshwright).
. checks/python.sh
if [ -z "$python" ]; then
    echo "SKIPPED: the frameworks' own checks need Python 3.12 or newer"
    exit 0
fi

version=$(cat checks/requirements.txt checks/alone.txt | sha256sum | cut -c1-12)
home=${XDG_CACHE_HOME:-$HOME/.cache}/meshwright/clients-$version
if [ ! -f "$home/ready" ]; then
    rm -rf "$home"
    mkdir -p "$(dirname "$home")"
    if ! { "$python" -m venv "$home" && "$home/bin/python" -m pip install -q uv \
        && "$home/bin/uv" pip install -q --python "$home/bin/python" -r checks/requirements.txt \
        && "$home/bin/uv" pip install -q --no-deps --python "$home/bin/python" -r checks/alone.txt; } > "$(dirname "$home")/log" 2>&1; then
        echo "SKIPPED: the frameworks cannot be installed from the Python registry; no emitted file was judged by its framework"
        tail -3 "$(dirname "$home")/log"
        rm -rf "$home"
        exit 0
    fi
    touch "$home/ready"
fi
