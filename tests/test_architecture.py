"""The rooms of the house: what may import what, and what importing the package costs."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import offline_summ

PACKAGE = Path(offline_summ.__file__).parent
HEAVY = (
    "torch",
    "vllm",
    "transformers",
    "outlines",
    "outlines_core",
    "huggingface_hub",
    "gguf",
    "markitdown",
    "sklearn",
    "scipy",
    "numpy",
)

# From the top: a file may import from files above it, never from files below it.
ROOMS = (
    "resources",
    "errors",
    "parts",
    "nearest",
    "loop",
    "network",
    "whole_file",
    "scoring",
    "schemas",
    "redaction",
    "airgap",
    "surrogates",
    "options",
    "example",
    "calibration",
    "calibration_choice",
    "evidence",
    "messages",
    "documents",
    "rows",
    "row_files",
    "results_file",
    "table_file",
    "prompts",
    "calibration_fit",
    "labelled",
    "reply_form",
    "grammar",
    "model_folder",
    "judge_sources",
    "judges",
    "weights_files",
    "weights_gguf",
    "weights_hub",
    "pip_command",
    "weights_wheels",
    "weights",
    "bundle_files",
    "bundle_pins",
    "bundle_wheels",
    "bundle",
    "engines.base",
    "engines.shared",
    "engines.chat",
    "engines.lifeline",
    "engines.grammar_backends",
    "engines.verdict_words",
    "engines.cpu",
    "engines.vllm_files",
    "engines.vllm_process",
    "engines.probe",
    "engines.vllm",
    "engines.scripted",
    "engines.choice",
    "protocols.base",
    "protocols.dialogue",
    "protocols.items",
    "protocols.memo",
    "protocols.drawn",
    "protocols.joint",
    "protocols.itemized",
    "protocols.reason",
    "session",
    "calibrator",
    "runner",
    "schedule",
    "many",
    "scorer",
    "evals",
    "totals",
    "batch",
    "batch_view",
    "render",
    "calibration_view",
    "bug_report",
    "verify",
    "verify_view",
    "machine",
    "model_memory",
    "judge_fit",
    "doctor",
    "terminal",
    "cli_options",
    "cli_airgap",
    "cli_inputs",
    "cli_batch",
    "cli_doctor",
    "cli_verify",
    "cli_bundle",
    "cli",
    "__main__",
)
FORBIDDEN = {
    "messages": {"scoring"},
    "documents": {"scoring", "schemas"},
    "prompts": {"grammar"},
    "grammar": {"prompts"},
    "reply_form": {"prompts", "scoring", "schemas"},
    "schemas": {"judges"},
    "options": {"judges", "engines.base"},
    "calibration_fit": {"documents", "messages", "prompts"},
    "labelled": {"prompts", "scoring"},
    "engines.vllm": {"scoring", "prompts", "grammar"},
    "protocols.dialogue": {"documents"},
    "protocols.joint": {"documents", "calibration_fit"},
    "protocols.itemized": {"documents", "calibration_fit"},
    "evidence": {"scoring"},
    "bundle": {"documents", "messages", "rows"},
    "bundle_files": {"judges", "weights"},
    "scorer": {"documents", "render"},
    "machine": {"judges"},
    "model_memory": {"machine", "engines.base"},
    "judge_fit": {"machine", "engines.vllm"},
    "doctor": {"engines.vllm", "scorer", "documents"},
    "verify": {"engines.base", "engines.vllm", "scorer"},
    "terminal": {"engines.vllm", "scorer"},
    "render": {"engines.base", "engines.vllm", "engines.scripted"},
}


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        if not name.endswith("__init__"):
            yield name, path


def imports_of(path):
    """Modules of this package that `path` imports at any level, type checking included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "offline_summ":
            inner = node.module.removeprefix("offline_summ").lstrip(".")
            for alias in node.names:
                full = f"{inner}.{alias.name}".lstrip(".")
                found.add(full if full in ROOMS else inner)
    return found


def test_every_file_has_a_place_in_the_order():
    assert sorted(name for name, _ in modules()) == sorted(ROOMS)


@pytest.mark.parametrize(("name", "path"), list(modules()))
def test_imports_point_one_way(name, path):
    above = set(ROOMS[: ROOMS.index(name)])
    assert imports_of(path) <= above


@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_room_knows_nothing_of_what_it_must_not(name):
    assert not imports_of(PACKAGE / (name.replace(".", "/") + ".py")) & FORBIDDEN[name]


def test_vllm_is_imported_in_one_file_only():
    using = [
        name
        for name, path in modules()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        and any(
            module.split(".")[0] == "vllm"
            for module in (
                [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else [alias.name for alias in node.names]
            )
        )
    ]
    assert set(using) == {"engines.vllm"}


@pytest.mark.parametrize("statement", ["import offline_summ", "import offline_summ.cli"])
def test_importing_loads_no_model_library_and_changes_nothing(statement):
    code = (
        "import json, logging, os, sys, threading\n"
        "before = dict(os.environ)\n"
        f"{statement}\n"
        "print(json.dumps([sorted(m for m in sys.modules if '.' not in m), before == dict(os.environ),"
        " logging.getLogger().handlers == [], threading.active_count()]))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded, same_environment, no_handlers, threads = json.loads(said.stdout)
    assert not set(HEAVY) & set(loaded)
    assert (same_environment, no_handlers, threads) == (True, True, 1)
    assert said.stderr == ""


def test_the_public_surface_is_pinned():
    assert offline_summ.__all__ == [
        "EvalInput",
        "EvalItem",
        "EvalsOutcome",
        "Example",
        "InputError",
        "Judge",
        "JudgeError",
        "JudgeStoppedError",
        "OfflineSummError",
        "ScriptedEngine",
        "SummarizationOptions",
        "SummarizationResult",
        "SummarizationScorer",
        "ToolResult",
        "UsageError",
        "WeightsError",
        "arun_evals",
        "extract_tool_results",
        "run_evals",
    ]
    assert all(hasattr(offline_summ, name) for name in offline_summ.__all__)
