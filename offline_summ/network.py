"""Closes the network for a process: a namespace with a loopback interface only, or a guard in Python.

A child process runs this file by its path, before it imports anything, so it needs the standard library only.
Linux; elsewhere only the guard can be had. Knows nothing of the rest of the package.
"""

import contextlib
import ctypes
import errno
import fcntl
import functools
import ipaddress
import os
import resource
import socket
import struct
import sys
from multiprocessing import spawn
from typing import Any

_CLONE_NEWUSER = 0x10000000  # <linux/sched.h>
_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS = 0x8913  # <linux/sockios.h>
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1  # <linux/if.h>
_CAPABILITY_VERSION_3 = 0x20080522  # <linux/capability.h>
_INTERFACE = struct.Struct("16sh14x")  # name and flags of struct ifreq
_REFUSAL = "closed by offline-summ"
_LOCAL_FAMILIES = {socket.AF_UNIX} | {
    getattr(socket, name) for name in ("AF_NETLINK", "AF_ALG") if hasattr(socket, name)
}


def close(mode: str) -> None:
    """Close the network of this process and of all that it will start.

    Args:
        mode: "namespace" or "guard". The guard comes with the namespace too: a resolver on this machine that
            is reached through a file would look a name up for a process that has no network itself.

    Raises:
        OSError: "namespace" is wanted, and the system forbids it. The process may be of no use then: try
            it in another one first.
    """
    if mode == "namespace" and not is_alone():
        _enter_namespace()
    _guard()


def leave_no_core_dump() -> None:
    """Keep the memory of this process, and of all that it will start, out of core dumps."""
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # A program that the kernel hands core dumps to gets them whatever the limit says; this empties them.
    with contextlib.suppress(OSError), open("/proc/self/coredump_filter", "w") as file:
        file.write("0")


def is_alone() -> bool:
    """Whether the loopback interface of this process is up, and no other one.

    The processes of an engine speak through it: a namespace in which it is down is of no use to them.
    """
    if sys.platform != "linux":
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for _, name in socket.if_nameindex():
            try:
                flags = _flags(control, name)
            except OSError as error:
                if error.errno == errno.ENODEV:  # gone meanwhile
                    continue
                return False
            if bool(flags & _IFF_UP) != (name == "lo"):
                return False
    return True


def _enter_namespace() -> None:
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, "this system has no network namespaces")
    if len(os.listdir("/proc/self/task")) > 1:
        # The namespace is one of a thread: others would stay outside.
        raise OSError(errno.EINVAL, "the process has more than one thread")
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() != 0:
        _unshare_as_user(libc)
    elif libc.unshare(_CLONE_NEWNET) != 0:
        _unshare_as_weak_root(libc)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        up = _INTERFACE.pack(b"lo", _flags(control, "lo") | _IFF_UP)
        fcntl.ioctl(control, _SIOCSIFFLAGS, up)
    if os.geteuid() != 0:
        _drop_capabilities(libc)
    if not is_alone():
        raise OSError(errno.EPERM, "the new namespace has another interface")


def _unshare_as_user(libc: ctypes.CDLL) -> None:
    user, group = os.geteuid(), os.getegid()
    _check(libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET))
    _write_map("self", "setgroups", "deny")
    _write_map("self", "uid_map", f"{user} {user} 1")
    _write_map("self", "gid_map", f"{group} {group} 1")


def _unshare_as_weak_root(libc: ctypes.CDLL) -> None:
    """Do it as the root of a container, which must keep its rights to the files of all other users.

    Only a process outside the new user namespace may map users other than its own into it.
    """
    maps = {}
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/self/{name}") as file:
            ranges = [line.split() for line in file]
        maps[name] = "".join(f"{inside} {inside} {count}\n" for inside, _, count in ranges)
    unshared, tell = os.pipe()
    here = os.getpid()
    helper = os.fork()
    if helper == 0:
        try:
            os.close(tell)
            os.read(unshared, 1)
            for name, text in maps.items():
                _write_map(str(here), name, text)
            os._exit(0)
        finally:
            os._exit(1)
    try:
        os.close(unshared)
        _check(libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET))
    finally:
        os.close(tell)
        _, status = os.waitpid(helper, 0)
    if status != 0:
        raise OSError(errno.EPERM, "users cannot be mapped into a user namespace")


def _write_map(process: str, name: str, text: str) -> None:
    with open(f"/proc/{process}/{name}", "w") as file:
        file.write(text)


def _check(returned: int) -> None:
    if returned != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _flags(control: socket.socket, name: str) -> int:
    answer = fcntl.ioctl(control, _SIOCGIFFLAGS, _INTERFACE.pack(name.encode(), 0))
    flags: int = _INTERFACE.unpack(answer)[1]
    return flags


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    """Give up what the new user namespace granted inside itself."""
    _check(libc.capset(struct.pack("=Ii", _CAPABILITY_VERSION_3, 0), bytes(24)))


_guarded = False


def _guard() -> None:
    """Refuse every connection and look-up that leaves this machine, in this process and its children."""
    global _guarded
    if _guarded:
        return
    _guarded = True
    sys.addaudithook(_refuse)
    # These look a name up before the hook hears of them.
    for name, place in (("connect", 0), ("connect_ex", 0), ("bind", 0), ("sendto", -1), ("sendmsg", 3)):
        setattr(socket.socket, name, _with_checked_name(getattr(socket.socket, name), place))
    original = spawn.get_command_line

    def command_line(**arguments: Any) -> list[str]:
        return with_prelude(original(**arguments), "guard")

    spawn.get_command_line = command_line


def _with_checked_name(method: Any, place: int) -> Any:
    @functools.wraps(method)
    def checked(self: socket.socket, *arguments: Any) -> Any:
        address = arguments[place] if -1 <= place < len(arguments) and arguments else None
        if self.family in (socket.AF_INET, socket.AF_INET6) and isinstance(address, tuple) and address:
            _refuse("socket.gethostbyname", address[:1])
        return method(self, *arguments)

    return checked


def with_prelude(line: list[str], mode: str) -> list[str]:
    """Return the command line of a Python process that closes its network first.

    Args:
        line: the command line, with a program after `-c`.
        mode: as in `close`.
    """
    program = line.index("-c") + 1
    line = [*line]
    line[program] = (
        f"network = {{'__name__': 'network', '__file__': {__file__!r}}}; "
        f"exec(compile(open({__file__!r}, 'rb').read(), {__file__!r}, 'exec'), network); "
        f"network['leave_no_core_dump'](); network['close']({mode!r}); del network; {line[program]}"
    )
    return line


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if not event.startswith("socket."):
        return
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        connection, address = arguments[:2]
        # Without an address it goes where `connect` was allowed to.
        if address is not None and not _is_local(connection.family, address):
            raise OSError(errno.ENETUNREACH, f"Network is unreachable: {_REFUSAL}")
    elif event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
        if not _needs_no_look_up(arguments[0], numeric_is_enough=event != "socket.gethostbyaddr"):
            raise socket.gaierror(socket.EAI_FAIL, f"Name resolution failed: {_REFUSAL}")
    elif event == "socket.getnameinfo" and not _is_local(socket.AF_INET6, arguments[0]):
        raise socket.gaierror(socket.EAI_FAIL, f"Name resolution failed: {_REFUSAL}")


def _is_local(family: int, address: Any) -> bool:
    if family in _LOCAL_FAMILIES:
        return True
    if family not in (socket.AF_INET, socket.AF_INET6) or not isinstance(address, tuple) or not address:
        return False
    return _needs_no_look_up(address[0], numeric_is_enough=False)


def _needs_no_look_up(host: Any, *, numeric_is_enough: bool) -> bool:
    if isinstance(host, bytes | bytearray):
        host = host.decode("latin-1")
    if host in (None, "", "localhost"):
        return True
    if not isinstance(host, str):
        return False
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None) or address
    # Linux takes 0.0.0.0 and :: for the loopback address.
    return numeric_is_enough or mapped.is_loopback or mapped.is_unspecified


if __name__ == "__main__":
    # Whether a namespace can be had, tried in a process of its own: where the system forbids it, a process
    # may be left without its rights.
    try:
        close("namespace")
    except OSError as error:
        sys.exit(error.strerror or type(error).__name__)
