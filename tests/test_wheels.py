"""What `make wheels` builds works in an environment that has never seen the repository.

The environment is an empty virtual one with the wheels, beside them links to the third-party packages of this one: no
network is needed, and nothing of jitney is there but what the wheels hold.
"""

import os
import site
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
FOLDERS = {"jitney": ROOT}
FOLDERS |= {
    f"jitney_{path.parent.name}": path.parent
    for glob in ("*", "plugins/*")
    for path in ROOT.glob(f"{glob}/pyproject.toml")
}
PROGRAM = """
import torch, jitney

def f(x):
    return torch.softmax(x.sin() + 1, -1).sum(0)

x = torch.randn(8, 16, requires_grad=True)
y = jitney.compile(f, backend="auto", fullgraph=True)(x)
torch.testing.assert_close(y, f(x))
y.sum().backward()
print(jitney.explain(f, backend="auto")(x), jitney.__file__)
"""
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with the wheels and source archives of everything."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, ROOT / ".ci/wheels.py", folder], check=True, capture_output=True)
    return folder


def wheel(built, name):
    return built / f"{name}-{VERSION}-py3-none-any.whl"


class Environment:
    """A virtual environment with wheels of ours and third-party packages of this one."""

    def __init__(self, folder, wheels, *, without=()):
        self.folder = folder
        venv.create(folder / "venv", with_pip=False)
        self.bin = folder / "venv/bin"
        others = folder / "third_party"
        others.mkdir()
        for place in filter(os.path.isdir, dict.fromkeys(sys.path)):
            if place in site_folders():
                link_third_parties(Path(place), others, without)
        (own,) = (folder / "venv/lib").glob("python*/site-packages")
        (own / "third_party.pth").write_text(f"{others}\n")  # a plain line: .pth files below are not looked at
        offline = ["--no-index", "--no-deps", "--disable-pip-version-check", "--quiet"]
        command = [sys.executable, "-m", "pip", "--python", self.bin / "python", "install", *offline, *wheels]
        subprocess.run(command, check=True)

    def run(self, *command, status=0):
        """What a command prints there; it must end with ``status``."""
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("JITNEY_", "PYTHON"))}
        env = kept | {"JITNEY_CACHE_DIR": str(self.folder / "cache"), "COLUMNS": "200"}
        command = [self.bin / command[0], *command[1:]]
        done = subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr


def site_folders():
    """Where packages are installed that this process can import; .pth files may have added to Python's own folders."""
    return {path for path in sys.path if any(Path(path).glob("*.dist-info"))} | set(site.getsitepackages())


def link_third_parties(place, others, without):
    for path in place.iterdir():
        ours = path.name.startswith(("jitney", "__editable__", *without))
        if not ours and path.suffix != ".pth" and not (others / path.name).exists():
            (others / path.name).symlink_to(path)


@pytest.fixture(scope="module")
def everything(built, tmp_path_factory):
    return Environment(tmp_path_factory.mktemp("everything"), built.glob("*.whl"))


def test_everything_is_built(built):
    assert {path.name for path in built.glob("*.whl")} == {wheel(built, name).name for name in FOLDERS}
    assert {path.name for path in built.glob("*.tar.gz")} == {f"{name}-{VERSION}.tar.gz" for name in FOLDERS}


@pytest.mark.parametrize("name", FOLDERS)
def test_a_wheel_holds_what_the_tree_holds(built, name):
    place = ROOT / "core" if name == "jitney" else FOLDERS[name] / name
    paths = [path for path in place.rglob("*") if path.is_file() and path.suffix != ".pyc" and path.name != "README.md"]
    tree = {f"{name}/{path.relative_to(place)}" for path in paths}
    with zipfile.ZipFile(wheel(built, name)) as archive:
        files = set(archive.namelist())
    described = {file for file in files if file.startswith(f"{name}-{VERSION}.dist-info/")}
    assert files - described == tree
    assert f"{name}-{VERSION}.dist-info/licenses/LICENSE" in described
    with tarfile.open(built / f"{name}-{VERSION}.tar.gz") as archive:
        assert f"{name}-{VERSION}/LICENSE" in archive.getnames()


def test_the_commands_of_the_core_run(everything):
    assert everything.run("jitney", "--version") == f"jitney {VERSION}\n"
    assert "bad " not in everything.run("jitney", "doctor")  # which comes with the tools
    listed = everything.run("jitney", "backends")
    assert all(name in listed for name in ("aot_eager", "ddp_bucketing", "eager", "llvm_cpu", "triton_gpu"))
    assert "broken" not in listed and "not installed" not in everything.run("jitney", "--help")


def test_a_program_is_compiled_by_default(everything):
    (everything.folder / "program.py").write_text(PROGRAM)
    printed = everything.run("python", "program.py")
    assert "llvm_cpu" in printed and str(everything.folder) in printed and str(ROOT / "core") not in printed


def test_the_core_alone_says_what_to_install(built, tmp_path):
    alone = Environment(tmp_path, [wheel(built, "jitney")])
    assert "jitney[tools]" in alone.run("jitney", "bisect", "program.py:f", status=1)
    assert "jitney[testing]" in alone.run("jitney", "conformance", "eager", status=1)
    assert "pip install jitney-eager" in alone.run("jitney", "backends")


def test_the_demo_finds_every_program_equal(everything):
    printed = everything.run("jitney", "demo")
    assert "differs" not in printed and "BERT" in printed and "speedup" in printed


def test_the_demo_needs_no_transformers(built, tmp_path):
    plain = Environment(tmp_path, built.glob("*.whl"), without=("transformers",))
    printed = plain.run("jitney", "demo")
    assert "differs" not in printed and "decoder" in printed and "GPT-2" not in printed and "speedup" in printed
