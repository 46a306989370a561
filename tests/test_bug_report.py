import os
import subprocess
import sys

from offline_summ.bug_report import describe_bug

PROGRAM = """
import sys, threading, warnings, logging
from offline_summ import cli, documents
def fail(*_):
    warnings.warn("a warning quotes plumtree")
    logging.getLogger("a.library").warning("a log line quotes plumtree")
    thread = threading.Thread(target=int, args=("a thread quotes plumtree",))
    thread.start()
    thread.join()
    try:
        int("plumtree")
    except ValueError as error:
        raise RuntimeError("it quotes plumtree") from error
cli.read_text = fail
sys.argv = ["offline-summ", "score", "a.txt", "b.txt", "--airgap", "off"]
cli.main()
"""


def run_with_a_bug(**environ):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env={**os.environ, **environ}
    )


def test_a_bug_is_told_by_its_places_and_classes_without_its_message():
    done = run_with_a_bug()
    assert done.returncode == 4
    assert done.stdout == ""
    assert "plumtree" not in done.stderr
    lines = done.stderr.splitlines()
    assert lines[-2] == "  RuntimeError"
    assert "  ValueError" in lines
    assert any("cli.py:" in line and line.endswith(" score") for line in lines)
    assert lines[-1] == (
        "This is a bug. Its message is not shown, because it may quote a document; "
        "OFFLINE_SUMM_SHOW_MESSAGES=1 shows it."
    )


def test_the_message_is_shown_on_request():
    done = run_with_a_bug(OFFLINE_SUMM_SHOW_MESSAGES="1")
    assert done.returncode == 4
    assert "RuntimeError: it quotes plumtree" in done.stderr
    assert "ValueError: invalid literal" in done.stderr
    assert "a thread quotes plumtree" in done.stderr


def test_an_exception_that_leads_to_itself_is_told_once():
    error = ValueError("plumtree")
    error.__context__ = KeyError("plumtree")
    error.__context__.__cause__ = error
    assert describe_bug(error).splitlines()[1:3] == ["  KeyError", "  ValueError"]
