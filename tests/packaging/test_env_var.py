"""env_var.sh in bash and zsh, on a copy of the tree whose package needs nothing from the network."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHELLS = [
    pytest.param(["bash", "--norc", "--noprofile"], id="bash"),
    pytest.param(
        ["zsh", "-f"], id="zsh", marks=pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
    ),
]
BASH = ["bash", "--norc", "--noprofile"]
EXTRAS = [
    "models",
    "yolo",
    "test",
    "cuda",
    "relax",
    "peers",
    "postgres",
    "predict",
    "fleet",
    "kubernetes",
    "docs",
    "all",
]

# A build backend in place of setuptools, which pip would have to download. Two variables make it fail.
BACKEND = """
import os, zipfile

def get_requires_for_build_editable(config_settings=None):
    return ["a-package-from-the-network"] if "STUB_NEEDS_NETWORK" in os.environ else []

def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    if "STUB_FAILS" in os.environ:
        raise RuntimeError("the backend is broken")
    name, info = "op_profiler-0.1.0-py3-none-any.whl", "op_profiler-0.1.0.dist-info"
    names = ("models", "cuda", "peers", "postgres", "predict", "fleet", "kubernetes", "docs")
    extras = "".join(f"Provides-Extra: {extra}\\n" for extra in names)
    files = {
        "op_profiler.pth": os.path.join(os.getcwd(), "python"),
        f"{info}/METADATA": "Metadata-Version: 2.1\\nName: op-profiler\\nVersion: 0.1.0\\n" + extras,
        f"{info}/WHEEL": "Wheel-Version: 1.0\\nGenerator: stub\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{file},,\\n" for file in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w") as wheel:
        for file, text in files.items():
            wheel.writestr(file, text)
    return name
"""


def make_tree(folder: Path) -> Path:
    """The files that env_var.sh looks at, with the stub for a build backend."""
    (folder / "python" / "op_profiler").mkdir(parents=True)
    shutil.copy(ROOT / "env_var.sh", folder)
    shutil.copytree(ROOT / "requirements", folder / "requirements")
    (folder / "python" / "op_profiler" / "__init__.py").write_text('__version__ = "0.1.0"\n')
    (folder / "stub_backend.py").write_text(BACKEND)
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "stub_backend"\nbackend-path = ["."]\n'
    )
    return folder


def run(
    shell: list[str], script: str, *, cwd: Path, path: Path | None = None, variables: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a script in a shell whose environment knows nothing of the tests' own virtual environment."""
    own = {"PYTHON", "PYTHONPATH", "VIRTUAL_ENV", "TVM_HOME", "TVM_LIBRARY_PATH", "TOPHUB_LOCATION", "BASH_ENV"}
    env = {k: v for k, v in os.environ.items() if k not in own}
    if path is not None:
        env["PATH"] = f"{path}{os.pathsep}{env['PATH']}"
    env.update(variables or {})
    command = [*shell, "-c", script]
    return subprocess.run(
        command, cwd=cwd, env=env, text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=900
    )


def make_pythons(folder: Path, body: str) -> Path:
    """A folder for PATH in which every Python that env_var.sh could find is this shell script."""
    folder.mkdir()
    for name in ("python", "python3", *(f"python3.{minor}" for minor in range(10, 15))):
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree, in a folder with a space in its name, that was sourced once."""
    folder = make_tree(tmp_path_factory.mktemp("first use") / "clone")
    done = run(BASH, "source ./env_var.sh; echo code $?", cwd=folder)
    assert done.stdout == "code 0\n", done.stderr
    assert done.stderr.count("op_profiler: installing") == 1
    assert len(done.stderr.splitlines()) == 1
    return folder


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("options", ["", "set -e", "set -u", "set -eu"])
def test_sourced_again_from_another_folder(tree: Path, tmp_path: Path, shell: list[str], options: str) -> None:
    script = f"""{options}
        source '{tree}/env_var.sh'
        echo "$VIRTUAL_ENV $TOPHUB_LOCATION"
        python -c 'import op_profiler; print(op_profiler.__file__)'"""
    done = run(shell, script, cwd=tmp_path)
    assert done.stderr == "", "it says so where it installs anything"
    assert done.stdout.splitlines() == [f"{tree}/.venv NONE", f"{tree}/python/op_profiler/__init__.py"]


@pytest.mark.parametrize("shell", SHELLS)
def test_nothing_is_left_behind(tree: Path, tmp_path: Path, shell: list[str]) -> None:
    if shell[0] == "bash":
        names, options = "compgen -v; compgen -A function", 'set +o; shopt; echo "$IFS"'
        other = "shopt -s nullglob expand_aliases; set +o posix"
    else:
        names, options = "print -l ${(k)parameters[@]} ${(k)functions[@]}", 'setopt; echo "$IFS"'
        other = "setopt ksh_arrays null_glob warn_create_global; chpwd() { echo moved; }"
    script = f"""
        {other}
        set -o noclobber -o noglob; IFS=/; CDPATH=/; alias cd=false echo=false rm=false fail=false
        before=; after=; set_before=$({options})
        before=$({names})
        source '{tree}/env_var.sh'; code=$?
        [ "$set_before" = "$({options})" ] && builtin echo same options
        after=$({names})
        builtin echo "code $code"; builtin echo "$before"; builtin echo ---; builtin echo "$after" """
    done = run(shell, script, cwd=tmp_path)
    first, second, *lines = done.stdout.splitlines()
    assert (first, second, done.stderr) == ("same options", "code 0", "")
    split = lines.index("---")
    left = set(lines[split + 1 :]) - set(lines[:split]) - {"code", "_", "LINENO", "PIPESTATUS", "PS1", "pipestatus"}
    of_venv = {"VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT", "deactivate"}
    assert {name for name in left - of_venv if not name.startswith("_OLD_VIRTUAL")} == {"TOPHUB_LOCATION"}


@pytest.mark.parametrize("shell", SHELLS)
def test_unknown_extra(tree: Path, shell: list[str]) -> None:
    done = run(shell, "source ./env_var.sh moddels; echo code $?; type _op_profiler_env", cwd=tree)
    assert done.stdout.startswith("code 1\n")
    sentence = done.stderr.splitlines()[0]
    assert sentence.startswith("error: env_var.sh does not know 'moddels'; it takes any of: " + " ".join(EXTRAS))
    assert "_op_profiler_env" not in done.stdout or "not found" in done.stdout
    assert run(shell, "set -e; source ./env_var.sh moddels || echo caught", cwd=tree).stdout == "caught\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_base_for_scripts_with_arguments(tree: Path, shell: list[str]) -> None:
    done = run(shell, "set -- --some argument; source ./env_var.sh base && echo $1", cwd=tree)
    assert (done.stdout, done.stderr) == ("--some\n", "")


def test_other_metadata_are_installed_anew(tree: Path) -> None:
    with (tree / "pyproject.toml").open("a") as file:
        file.write("# another dependency\n")
    script = "source ./env_var.sh; echo code $?"
    assert "op_profiler: installing" in run(BASH, script, cwd=tree).stderr
    assert run(BASH, script, cwd=tree).stderr == ""


def test_extras_are_added_and_remembered(tree: Path) -> None:
    first = run(BASH, "source ./env_var.sh models postgres", cwd=tree)
    assert "installing with models,postgres" in first.stderr
    assert run(BASH, "source ./env_var.sh postgres; source ./env_var.sh", cwd=tree).stderr == ""


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("version", "named"), [("3.8.18", "(python3 is 3.8.18"), ("3.15.0", "(python3 is 3.15.0"), ("", "on PATH. Install")]
)
def test_no_usable_python(tmp_path: Path, shell: list[str], version: str, named: str) -> None:
    tree = make_tree(tmp_path / "clone")
    pythons = make_pythons(tmp_path / "pythons", f"echo {version}" if version else "exit 127")
    done = run(shell, "source ./env_var.sh; echo code $?", cwd=tree, path=pythons)
    assert done.stdout == "code 1\n"
    assert "op_profiler needs Python 3.10 to 3.14, and there is none on PATH" in done.stderr
    assert named in done.stderr
    assert not (tree / ".venv").exists()


@pytest.mark.parametrize(
    ("python", "sentence"),
    [
        ("/nowhere/python3", "PYTHON is /nowhere/python3, but that does not run"),
        ("python3", "PYTHON is python3, Python 3.9.2, but op_profiler needs Python 3.10 to 3.14"),
    ],
)
def test_python_that_was_asked_for(tree: Path, tmp_path: Path, python: str, sentence: str) -> None:
    pythons = make_pythons(tmp_path / "pythons", "echo 3.9.2")
    done = run(BASH, "source ./env_var.sh; echo code $?", cwd=tree, path=pythons, variables={"PYTHON": python})
    assert (done.stdout, done.stderr) == ("code 1\n", f"error: {sentence}\n")


def test_python_without_ensurepip(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "clone")
    pythons = make_pythons(tmp_path / "pythons", 'case "$*" in *ensurepip*) exit 1 ;; esac; echo 3.12.3')
    done = run(BASH, "source ./env_var.sh; echo code $?", cwd=tree, path=pythons)
    assert done.stdout == "code 1\n"
    assert "apt-get install python3.12-venv" in done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_pip_fails(tree: Path, shell: list[str]) -> None:
    done = run(shell, "source ./env_var.sh predict; echo code $?", cwd=tree, variables={"STUB_FAILS": "1"})
    assert done.stdout == "code 1\n"
    assert "the backend is broken" in done.stderr
    assert f"error: pip failed; the end of its log is above, all of it in {tree}/.venv-install.log" in done.stderr
    assert run(shell, "source ./env_var.sh && echo works", cwd=tree).stdout == "works\n"


def test_no_network(tree: Path) -> None:
    variables = {
        "STUB_NEEDS_NETWORK": "1",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_FIND_LINKS": "",
        "PIP_RETRIES": "1",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }
    done = run(BASH, "source ./env_var.sh predict; echo code $?", cwd=tree, variables=variables)
    assert done.stdout == "code 1\n"
    assert "error: pip cannot reach the package index. Is there a network?" in done.stderr


def test_interrupted_install_is_redone(tree: Path) -> None:
    stamp = tree / ".venv" / ".op_profiler"
    before = stamp.read_text()
    (record,) = (tree / ".venv").glob("lib/python*/site-packages/op_profiler-*.dist-info/RECORD")
    record.unlink()
    stamp.write_text("installing\n\n")
    done = run(BASH, "source ./env_var.sh; echo code $?", cwd=tree)
    assert done.stdout == "code 0\n"
    assert "installing" in done.stderr
    assert record.is_file()
    assert stamp.read_text().splitlines()[0] == before.splitlines()[0]


def test_moved_tree_is_installed_anew(tree: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(tree, moved, symlinks=True)
    done = run(
        BASH, "source ./env_var.sh; command -v pip; python -c 'import op_profiler as o; print(o.__file__)'", cwd=moved
    )
    assert done.stdout.splitlines() == [f"{moved}/.venv/bin/pip", f"{moved}/python/op_profiler/__init__.py"]


@pytest.mark.parametrize("shell", SHELLS)
def test_own_build_of_tvm(tree: Path, tmp_path: Path, shell: list[str]) -> None:
    script = "source ./env_var.sh; echo code $?; source ./env_var.sh; echo $PYTHONPATH; echo $TVM_LIBRARY_PATH"
    missing = run(shell, script, cwd=tree, variables={"TVM_HOME": str(tmp_path)})
    assert missing.stdout.startswith("code 1\n")
    assert f"error: TVM_HOME is {tmp_path}, but there is no {tmp_path}/python/tvm." in missing.stderr

    (tmp_path / "python" / "tvm").mkdir(parents=True)
    (tmp_path / "python" / "tvm" / "__init__.py").touch()
    (tmp_path / "build").mkdir()
    done = run(shell, script, cwd=tree, variables={"TVM_HOME": str(tmp_path), "PYTHONPATH": "/other"})
    assert done.stdout.splitlines() == ["code 0", f"{tmp_path}/python:/other", f"{tmp_path}/build"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "sh"])
def test_run_in_place_of_sourced(tree: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([shell, "env_var.sh"], cwd=tree, text=True, capture_output=True)
    assert done.returncode == 1
    assert done.stderr == (
        "error: env_var.sh sets up the shell that it is sourced from, bash or zsh: source ./env_var.sh\n"
    )


@pytest.mark.parametrize("script", ["collector", "python/performance_collector"])
def test_collector_script(script: str) -> None:
    command = [sys.executable, str(ROOT / script / "op_performance_collector.py"), "--help"]
    done = subprocess.run(command, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert "--modelsource" in done.stdout

    command.insert(1, "-S")  # without site-packages
    done = subprocess.run(command, text=True, capture_output=True, env={"PATH": os.environ["PATH"]})
    assert done.returncode == 1
    assert done.stderr.startswith("error: the Python package ")
    assert done.stderr.endswith("Install it with: source ./env_var.sh\n")


def test_relax_s_tvm_is_installed_beside_the_other_one(tree: Path, tmp_path: Path) -> None:
    """The last test of the tree: its pip writes down what it is asked for from now on."""
    told, (pip,) = tmp_path / "told", (tree / ".venv" / "lib").glob("python3*/site-packages/pip")
    (pip / "__main__.py").write_text(f"import sys\nopen({str(told)!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')\n")
    done = run(BASH, "source ./env_var.sh relax; echo code $?", cwd=tree)
    assert done.stdout == "code 0\n", done.stderr
    (line,) = [line for line in told.read_text().splitlines() if "--target" in line]
    wanted = f"--no-deps --require-hashes --upgrade --target {tree}/.venv/relax-tvm -r requirements/relax.txt"
    assert line.endswith(wanted)
    assert run(BASH, "source ./env_var.sh cuda; echo code $?", cwd=tree).stdout == "code 0\n"
    *_, locked, package, relax = [line for line in told.read_text().splitlines() if "install" in line]
    assert locked.endswith("--no-deps --require-hashes -r requirements/cuda.txt") and "-e .[cuda,relax]" in package
    assert relax.endswith("-r requirements/relax.txt -r requirements/relax-cuda.txt")


@pytest.mark.parametrize("path", sorted((ROOT / "requirements").glob("*.txt")), ids=lambda path: path.stem)
def test_wheels_are_locked_by_their_hashes(path: Path) -> None:
    text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE).replace("\\\n", "")
    for line in text.splitlines():
        assert re.fullmatch(
            r"[\w-]+==[\w.]+( ; python_version [<>=]+ '3\.\d+')?( +--hash=sha256:[0-9a-f]{64})+", line
        ), line


def test_the_package_asks_for_the_wheels_that_are_locked() -> None:
    """pip would take another version for the extra than the one whose hash is known."""
    from op_profiler.targets.cuda.tvm_build import WHEEL

    locked = set(re.findall(r"^[\w-]+==[\w.]+", (ROOT / "requirements" / "cuda.txt").read_text(), re.MULTILINE))
    extra = re.search(r"^cuda = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(), re.MULTILINE | re.DOTALL)
    assert extra is not None
    assert locked == {WHEEL, *re.findall(r'"([\w-]+==[\w.]+)"', extra[1])}
