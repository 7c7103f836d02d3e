"""One run of memcalc under limits: what came out, how long it took, how much memory."""
import os
import select
import signal
import subprocess
import tempfile
from typing import NamedTuple

GIB = 2**30


class Outcome(NamedTuple):
    status: int  # negative: the signal that ended it
    out: bytes
    err: bytes
    seconds: float  # of the processor, all threads: it does not depend on what else the machine does
    memory: int     # bytes, the most that were resident
    blocked: bool   # it was still there when the time for a blocked run was over


def ended_within(pid, seconds):
    """Whether the process ends so soon; it is still to be waited for."""
    descriptor = os.pidfd_open(pid)
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


def run(command, *, wall_limit=300.0, processor_limit=20, address_space=None, env=None, stdin=None, stdout=None, cwd=None):
    """Ended by SIGXCPU after `processor_limit` seconds of the processor, by SIGKILL after `wall_limit` seconds: the first
    ends loops, the second what waits for ever, with all that it started. `stdin`, `stdout`: files; nothing: empty, kept."""
    # The shell sets the limits: preexec_fn would run Python between fork and exec, which can block for ever in a process
    # with threads (documentation of subprocess).
    limits = f"ulimit -c 0; ulimit -S -t {processor_limit}; ulimit -H -t {processor_limit + 5}; "
    if address_space: limits += f"ulimit -v {address_space // 1024}; "
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(["/bin/sh", "-c", limits + 'exec "$0" "$@"', *command], stdin=stdin or subprocess.DEVNULL,
                                   stdout=stdout or out, stderr=err, env=env, cwd=cwd, start_new_session=True)
        blocked = not ended_within(process.pid, wall_limit)
        if blocked: os.killpg(process.pid, signal.SIGKILL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        for stream in (out, err): stream.seek(0)
        return Outcome(process.returncode, out.read(), err.read(1 << 20), usage.ru_utime + usage.ru_stime,
                       usage.ru_maxrss * 1024, blocked)


def message_problem(outcome):
    """What is wrong with an error's message; None: nothing. It is one line that any terminal shows."""
    try: text = outcome.err.decode("utf-8")
    except UnicodeDecodeError: return "stderr is not UTF-8"
    if text.count("\n") != 1 or not text.endswith("\n"): return f"{text.count(chr(10))} lines on stderr"
    if not text.startswith("memcalc: error: "): return "the line does not begin with \"memcalc: error: \""
    if len(text) > 6000: return f"a message of {len(text)} characters"
    if any(ord(c) < 32 or 127 <= ord(c) < 160 for c in text[:-1]): return "a control character in the message"
    return None
