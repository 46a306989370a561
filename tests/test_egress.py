import json

import pytest
from egress import is_egress, report


@pytest.mark.parametrize(
    "line",
    [
        '7 connect(3, {sa_family=AF_INET, sin_port=htons(443), sin_addr=inet_addr("192.0.2.7")}, 16) = -1',
        '7 connect(3, {sa_family=AF_INET6, inet_pton(AF_INET6, "2001:db8::1", &sin6_addr)}, 28)',
        '7 sendto(3, "x", 1, 0, {sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("10.0.0.2")}, 16)',
        '7 connect(3, {sa_family=AF_UNIX, sun_path="/run/systemd/resolve/io.systemd.Resolve"}, 42) = 0',
    ],
)
def test_an_address_outside_the_machine_and_a_resolver_count(line):
    assert is_egress(line)


@pytest.mark.parametrize(
    "line",
    [
        '7 connect(3, {sa_family=AF_INET, sin_port=htons(5000), sin_addr=inet_addr("127.0.0.1")}, 16) = 0',
        '7 connect(3, {sa_family=AF_INET6, inet_pton(AF_INET6, "::1", &sin6_addr)}, 28) = 0',
        '7 connect(3, {sa_family=AF_UNIX, sun_path="/tmp/engine"}, 110) = 0',
        "7 sendto(3, [{nlmsg_len=20, nlmsg_type=RTM_GETLINK}], 20, 0, {sa_family=AF_NETLINK}, 12) = 20",
    ],
)
def test_what_stays_in_the_machine_does_not(line):
    assert not is_egress(line)


def write_runs(folder, trace, *, alone=0.5):
    for name, score in (("open", 0.5), ("alone", alone)):
        run = {"judge": "a", "weights_sha256": "b", "prompts_sha256": "c", "calls": 2, "network": name}
        row = json.dumps({"score": score, "input": {"number": 1}, "run": run})
        (folder / f"{name}.score.json").write_text(row)
        (folder / f"{name}.batch.jsonl").write_text(row + "\n")
    (folder / "trace").write_text(trace)


LOCAL = '7 connect(3, {sa_family=AF_UNIX, sun_path="/tmp/engine"}, 110) = 0\n'
OUTSIDE = '7 connect(3, {sa_family=AF_INET, sin_port=htons(443), sin_addr=inet_addr("192.0.2.7")}, 16) = -1\n'


def test_a_run_that_attempts_nothing_and_scores_the_same_passes(tmp_path, capsys):
    write_runs(tmp_path, LOCAL)
    assert report(tmp_path) == 0
    assert json.loads(capsys.readouterr().out) == {
        "egress_attempts": 0,
        "calls_traced": 1,
        "same_scores": True,
        "scores": [0.5, 0.5],
        "network": {"open": ["open"], "alone": ["alone"]},
    }


def test_an_attempt_fails_the_check_and_is_shown(tmp_path, capsys):
    write_runs(tmp_path, LOCAL + OUTSIDE)
    assert report(tmp_path) == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out)["egress_attempts"] == 1
    assert shown.err == OUTSIDE


def test_another_score_fails_the_check(tmp_path, capsys):
    write_runs(tmp_path, LOCAL, alone=0.4)
    assert report(tmp_path) == 1
    assert json.loads(capsys.readouterr().out)["same_scores"] is False


def test_a_trace_of_nothing_proves_nothing(tmp_path):
    write_runs(tmp_path, "")
    with pytest.raises(SystemExit, match="this proves nothing"):
        report(tmp_path)
