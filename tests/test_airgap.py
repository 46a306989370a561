"""How the network is closed. Each case runs in a process of its own: what is closed stays closed."""

import json
import os
import subprocess
import sys
import textwrap
import threading

import pytest

from offline_summ import ScriptedEngine, SummarizationScorer, airgap
from offline_summ.airgap import engine_network, go_offline, why_no_namespace
from offline_summ.engines.vllm_process import network_need
from offline_summ.errors import JudgeError, UsageError

needs_namespace = pytest.mark.skipif(
    why_no_namespace() is not None, reason=f"this system gives no network namespace: {why_no_namespace()}"
)
ELSEWHERE = "192.0.2.1"  # an address for documentation, RFC 5737

HELPERS = f'''
import ctypes, errno, json, multiprocessing, os, socket, struct, subprocess, sys
from offline_summ import airgap, network

def attempt(call):
    try:
        call()
        return "done"
    except OSError as error:
        return type(error).__name__ + " " + str(error)

def udp(address, family=socket.AF_INET):
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        s.connect(address)

def sendto(address):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.sendto(b"x", address)

def below_python(address):
    """Connect as a library in C does, and return the number of the error, or 0."""
    libc = ctypes.CDLL(None, use_errno=True)
    s = libc.socket(socket.AF_INET, socket.SOCK_DGRAM, 0)
    raw = struct.pack("=H", socket.AF_INET) + struct.pack("!H", 53) + socket.inet_aton(address) + bytes(8)
    ctypes.set_errno(0)
    libc.connect(s, raw, 16)
    return ctypes.get_errno()

def in_child(queue):
    queue.put(attempt(lambda: udp(("{ELSEWHERE}", 53))))

def of_child(method):
    context = multiprocessing.get_context(method)
    queue = context.SimpleQueue()
    child = context.Process(target=in_child, args=(queue,))
    child.start()
    said = queue.get()
    child.join()
    return said
'''


def outcome(body, tmp_path):
    """Run a program, and return what it gives to `say`, as JSON."""
    path = tmp_path / "program.py"
    program = textwrap.indent(textwrap.dedent(body), "    ")
    path.write_text(
        f"{HELPERS}\nif __name__ == '__main__':\n    say = lambda x: print(json.dumps(x))\n{program}"
    )
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class TestGuard:
    def test_it_refuses_what_leaves_the_machine_and_nothing_else(self, tmp_path):
        found = outcome(
            f"""
            network.close("guard")
            say({{
                "connect": attempt(lambda: udp(("{ELSEWHERE}", 53))),
                "sendto": attempt(lambda: sendto(("{ELSEWHERE}", 53))),
                "IPv6": attempt(lambda: udp(("2001:db8::1", 53), socket.AF_INET6)),
                "mapped": attempt(lambda: udp(("::ffff:192.0.2.1", 53), socket.AF_INET6)),
                "bind": attempt(lambda: socket.socket().bind(("example.com", 0))),
                "name": attempt(lambda: udp(("example.com", 53))),
                "name, sendto": attempt(lambda: sendto(("example.com", 53))),
                "getaddrinfo": attempt(lambda: socket.getaddrinfo("example.com", 80)),
                "bytes": attempt(lambda: socket.getaddrinfo(b"example.com", 80)),
                "gethostbyname": attempt(lambda: socket.gethostbyname("example.com")),
                "gethostbyaddr": attempt(lambda: socket.gethostbyaddr("{ELSEWHERE}")),
                "getnameinfo": attempt(lambda: socket.getnameinfo(("{ELSEWHERE}", 80), 0)),
                "loopback": attempt(lambda: udp(("127.0.0.1", 53))),
                "connect by name": attempt(lambda: udp(("localhost", 53))),
                "any port": attempt(lambda: socket.socket().bind(("", 0))),
                "loopback by name": attempt(lambda: socket.getaddrinfo("localhost", 80)),
                "numeric": attempt(lambda: socket.getaddrinfo("{ELSEWHERE}", 80)),
            }})
            """,
            tmp_path,
        )
        unreachable = "OSError [Errno 101] Network is unreachable: closed by offline-summ"
        for refused in ("connect", "sendto", "IPv6", "mapped"):
            assert found.pop(refused) == unreachable, refused
        for refused in (
            "bind",
            "name",
            "name, sendto",
            "getaddrinfo",
            "bytes",
            "gethostbyname",
            "gethostbyaddr",
            "getnameinfo",
        ):
            assert "Name resolution failed: closed by offline-summ" in found.pop(refused), refused
        assert set(found.values()) == {"done"}, found

    def test_what_it_says_holds_no_address_and_no_name(self, tmp_path):
        said = outcome(
            f"""
            network.close("guard")
            say([attempt(lambda: udp(("{ELSEWHERE}", 53))),
                 attempt(lambda: socket.getaddrinfo("secret.example.com", 80))])
            """,
            tmp_path,
        )
        assert ELSEWHERE not in said[0]
        assert "secret" not in said[1]

    @pytest.mark.parametrize("method", ["spawn", "fork"])
    def test_children_and_their_children_have_it_too(self, method, tmp_path):
        assert "closed by offline-summ" in outcome(
            f"network.close('guard'); say(of_child({method!r}))", tmp_path
        )
        again = """
            network.close("guard")
            from multiprocessing import spawn
            line = network.with_prelude([sys.executable, "-c", "pass"], "guard")
            # What a child runs first wraps what it starts itself.
            found = subprocess.run(
                [*line[:-1], line[-1] + "; from multiprocessing import spawn; "
                 "print(spawn.get_command_line()[-2 if '--multiprocessing-fork' in spawn.get_command_line() "
                 "else -1])"], capture_output=True, text=True)
            say(found.stdout)
        """
        assert "network['close']('guard')" in outcome(again, tmp_path)


@needs_namespace
class TestNamespace:
    def test_nothing_but_loopback_is_left_below_python_and_in_programs(self, tmp_path):
        found = outcome(
            f"""
            state = airgap.close_process("required"), airgap.process_network()
            say({{
                "state": state,
                "alone": network.is_alone(),
                "C": below_python("{ELSEWHERE}"),
                "loopback": below_python("127.0.0.1"),
                "program": subprocess.run([sys.executable, "-c",
                    "import socket as s; s.socket(type=s.SOCK_DGRAM).connect(('{ELSEWHERE}', 53))"],
                    capture_output=True, text=True).stderr.splitlines()[-1],
                "spawn": of_child("spawn"),
                "name": attempt(lambda: socket.getaddrinfo("example.com", 80)),
                "user": os.getuid(),
            }})
            """,
            tmp_path,
        )
        assert found["state"] == [None, "namespace"]
        assert found["alone"] is True
        assert found["C"] == 101
        assert found["loopback"] == 0
        assert found["program"] == "OSError: [Errno 101] Network is unreachable"
        assert "closed by offline-summ" in found["spawn"]
        assert "closed by offline-summ" in found["name"]
        assert found["user"] == os.getuid()

    def test_a_process_with_threads_gets_the_guard_because_a_thread_would_stay_outside(self, tmp_path):
        found = outcome(
            """
            import threading
            stop = threading.Event()
            threading.Thread(target=stop.wait, daemon=True).start()
            before = os.readlink("/proc/self/ns/net")
            if network.is_alone():
                say(None)
            else:
                said = airgap.close_process("auto")
                say([said, airgap.process_network(), before == os.readlink("/proc/self/ns/net")])
            """,
            tmp_path,
        )
        if found is None:
            pytest.skip("this machine has no network but loopback, so that nothing has to be closed")
        assert found == [
            "No network namespace (the process has more than one thread); a guard inside Python refuses "
            "connections instead.",
            "guard",
            True,
        ]

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
    def test_it_needs_no_rights(self, tmp_path):
        found = outcome(
            f"""
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE: as in a program that this user started
            network.close("namespace")
            say([network.is_alone(), below_python("{ELSEWHERE}"), os.getuid(), os.getgid()])
            """,
            tmp_path,
        )
        assert found == [True, 101, 65534, 65534]

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a namespace without more ado")
    def test_a_namespace_in_which_loopback_is_down_is_not_taken_for_closed(self, tmp_path):
        found = outcome(
            """
            assert ctypes.CDLL(None).unshare(0x40000000) == 0  # CLONE_NEWNET
            before = network.is_alone()
            said = airgap.close_process("required")
            with socket.create_server(("127.0.0.1", 0)) as server:
                socket.create_connection(server.getsockname()).close()
            say([before, said, network.is_alone(), airgap.process_network()])
            """,
            tmp_path,
        )
        assert found == [False, None, True, "namespace"]

    def test_a_child_of_an_open_process_closes_itself_first(self, tmp_path):
        found = outcome(
            """
            from offline_summ.engines.lifeline import children_prepared
            result = {}
            for how in ("engine_namespace", "engine_guard", "open"):
                with children_prepared(how):
                    result[how] = [of_child("spawn"), of_child("fork")]
            result["after"] = of_child("spawn")
            result["this"] = airgap.process_network()
            say(result)
            """,
            tmp_path,
        )
        for how in ("engine_namespace", "engine_guard"):
            assert all("closed by offline-summ" in said for said in found[how]), how
        assert not any("closed by offline-summ" in said for said in [*found["open"], found["after"]])
        assert found["this"] == "open"


class TestWishes:
    def test_off_leaves_it_open(self, tmp_path):
        body = "say([airgap.close_process('off'), airgap.process_network()])"
        assert outcome(body, tmp_path) == [None, "open"]

    def test_required_refuses_where_there_is_no_namespace(self, monkeypatch):
        monkeypatch.setattr(airgap, "why_no_namespace", lambda: "Operation not permitted")
        with pytest.raises(JudgeError, match=r"gives none: Operation not permitted\. Allow unprivileged"):
            engine_network("required", one_child=True)
        assert engine_network("auto", one_child=True) == "engine_guard"
        assert engine_network("off", one_child=True) == "open"

    def test_several_engine_processes_share_no_namespace(self, monkeypatch):
        monkeypatch.setattr(airgap, "why_no_namespace", lambda: None)
        assert engine_network("auto", one_child=True) == "engine_namespace"
        assert engine_network("auto", one_child=False) == "engine_guard"
        with pytest.raises(JudgeError, match="the engine is several processes"):
            engine_network("required", one_child=False)

    def test_an_engine_of_the_users_is_not_taken_for_a_closed_one(self):
        engine = ScriptedEngine.judging({"It rained.": True}, {"Did it rain?": True})
        with pytest.raises(UsageError, match=r"airgap is 'required', but the model is an engine"):
            SummarizationScorer(engine, airgap="required")
        with SummarizationScorer(engine) as scorer:
            assert scorer.score("It rained.", "It rained.").run.network == "open"

    def test_an_unknown_wish_is_refused(self):
        with pytest.raises(UsageError, match=r"airgap is 'on'\. Choose one of auto, required, off\."):
            airgap.check("on")

    @pytest.mark.parametrize(
        ("arguments", "need"),
        [
            ({}, None),
            ({"tensor_parallel_size": 8}, None),
            ({"nnodes": 2}, "nnodes = 2"),
            ({"distributed_executor_backend": "ray"}, "distributed_executor_backend = 'ray'"),
        ],
    )
    def test_a_judge_on_several_machines_is_known(self, arguments, need):
        assert network_need(arguments) == need


def test_nothing_of_the_memory_reaches_a_core_dump(tmp_path):
    found = outcome(
        """
        network.leave_no_core_dump()
        code = "import resource; print(resource.getrlimit(resource.RLIMIT_CORE), " \\
            "int(open('/proc/self/coredump_filter').read(), 16))"
        say(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout)
        """,
        tmp_path,
    )
    assert found == "(0, 0) 0\n"


def test_a_host_address_of_the_users_is_kept_and_telemetry_is_not():
    environ = {"VLLM_HOST_IP": "10.0.0.1", "HF_HUB_OFFLINE": "0"}
    go_offline(environ)
    assert environ["VLLM_HOST_IP"] == "10.0.0.1"
    assert environ["HF_HUB_OFFLINE"] == "1"
    assert environ["VLLM_NO_USAGE_STATS"] == "1"


def test_the_probe_leaves_this_process_as_it_is():
    before = os.readlink("/proc/self/ns/net"), threading.active_count()
    why_no_namespace.cache_clear()
    why_no_namespace()
    assert (os.readlink("/proc/self/ns/net"), threading.active_count()) == before


def test_the_libraries_read_the_switches():
    program = textwrap.dedent(
        """
        import json, os
        from offline_summ.airgap import go_offline
        go_offline(os.environ)
        from huggingface_hub import constants
        from opentelemetry.sdk.trace import TracerProvider
        from transformers.integrations import hub_kernels
        from vllm import envs
        from vllm.usage.usage_lib import is_usage_stats_enabled
        print(json.dumps({
            "hub offline": constants.HF_HUB_OFFLINE,
            "hub telemetry off": constants.HF_HUB_DISABLE_TELEMETRY,
            "kernels from the hub": hub_kernels._kernels_enabled,
            "usage statistics": is_usage_stats_enabled(),
            "traces": TracerProvider().get_tracer("a").start_span("b").is_recording(),
            "address": envs.VLLM_HOST_IP,
        }))
        """
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "hub offline": True,
        "hub telemetry off": True,
        "kernels from the hub": False,
        "usage statistics": False,
        "traces": False,
        "address": "127.0.0.1",
    }
