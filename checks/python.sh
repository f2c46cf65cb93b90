# The first Python 3.12 or newer of this machine, in $python; empty if there is none. Sourced.
python=""
for candidate in python3.13 python3.12 python3 "$HOME"/.pyenv/versions/3.1[2-9]*/bin/python; do
    if command -v "$candidate" > /dev/null && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2> /dev/null; then
        python=$candidate
        break
    fi
done
