"""Workers: whatever a job does comes back as a value, to any kind of caller, and no process stays behind."""

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest

from tossup.records import TossupError
from tossup.verifiers import workers
from tossup.verifiers.cpus import SIZE_VARIABLE
from tossup.verifiers.workers import Outcome, Workers

HANG = "10 ** 10 ** 10"
SLEEP = "__import__('time').sleep({})"
PID = "__import__('os').getpid()"


@pytest.fixture
def pool():
    """Two workers that evaluate Python expressions."""
    with Workers("builtins:eval", size=2, timeout_s=0.3, wall_s=30) as pool:
        yield pool


def alive(pid):
    """Whether a process is there and no zombie."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(*pids, within_s=20):
    """Whether all of these processes end within a time that is generous on a busy machine."""
    end = time.monotonic() + within_s
    while any(alive(pid) for pid in pids):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def script(code, **options):
    """A Python script in a process of its own; warnings are errors."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True, **options
    )


def test_results_keep_the_order_of_the_jobs(pool):
    replies = pool.map([[f"{i} * {i}"] for i in range(50)])
    assert [r.result for r in replies] == [i * i for i in range(50)]
    assert {r.outcome for r in replies} == {Outcome.DONE}


def test_no_more_workers_than_asked_for(pool):
    assert 1 <= len({r.result for r in pool.map([[PID]] * 50)}) <= 2


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("{1, 2}", "TypeError: Object of type set is not JSON serializable"),
        ("(lambda f: f(f))(lambda f: f(f))", "RecursionError: maximum recursion depth exceeded"),
    ],
)
def test_an_exception_comes_back_as_text(pool, job, reason):
    before = pool.call(PID).result
    reply = pool.call(job)
    assert (reply.outcome, reply.reason) == (Outcome.RAISED, reason)
    assert pool.call(PID).result == before


def test_what_a_job_prints_is_no_reply(pool):
    assert pool.call("[print('noise', flush=True), __import__('os').write(1, b'noise'), 7][-1]").result == 7


def test_any_text_survives_the_trip(pool):
    text = "\ud800 lone, \u2028 separator, \0 null, 𝔸"
    assert pool.call("[text, len(text)]", {"text": text}).result == [text, len(text)]


def test_long_arguments_and_results_do_not_block_each_other(pool):
    text = "x" * 3_000_000
    assert pool.call("text + text", {"text": text}).result == text + text


@pytest.mark.parametrize("job", [HANG, "[0 for _ in iter(int, 1)]"])
def test_an_overrun_is_killed_and_the_next_job_is_served(job):
    with Workers("builtins:eval", size=1, timeout_s=0.2) as pool:
        pid = pool.call(PID).result
        reply = pool.call(job)
        assert (reply.outcome, reply.reason) == (Outcome.TIMEOUT, "timeout after 0.2 s of CPU time")
        assert not alive(pid)
        assert pool.call("6 * 7").result == 42


def test_a_job_that_sleeps_runs_into_the_wall_limit():
    with Workers("builtins:eval", size=1, timeout_s=5, wall_s=0.3) as pool:
        assert pool.call(SLEEP.format(60)).reason == "timeout after 0.3 s"


def test_waiting_for_a_worker_is_not_the_job_s_time():
    with Workers("builtins:eval", size=1, timeout_s=5, wall_s=4) as pool:
        replies = pool.map([[SLEEP.format(0.9)]] * 5)
        assert [r.outcome for r in replies] == [Outcome.DONE] * 5


def test_loading_and_warming_up_are_not_the_job_s_time():
    warm_up = [["[i for i in range(10**8) if i == 0] and None"]]
    with Workers("builtins:eval", size=1, timeout_s=0.2, warm_up=warm_up) as pool:
        assert pool.call("6 * 7").result == 42


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        ("__import__('os').abort()", "worker killed by SIGABRT"),
        ("__import__('os')._exit(3)", "worker exited with code 3"),
    ],
)
def test_a_job_that_kills_its_worker_comes_back_as_died(pool, job, reason):
    reply = pool.call(job)
    assert (reply.outcome, reply.reason) == (Outcome.DIED, reason)
    assert pool.call("6 * 7").result == 42


def test_a_worker_killed_from_outside_costs_no_job(pool):
    for reply in pool.map([[PID]] * 20):
        if alive(reply.result):
            os.kill(reply.result, signal.SIGKILL)
            assert gone(reply.result)
    assert [r.result for r in pool.map([["6 * 7"]] * 4)] == [42] * 4


def test_memory_is_capped_in_the_worker_alone():
    with Workers("builtins:eval", size=1, memory_mb=256) as pool:
        assert pool.call("len('x' * (1 << 30))").reason.startswith("MemoryError")
        assert pool.call("len('x' * (1 << 20))").result == 1 << 20
    assert len(b"x" * (1 << 30)) == 1 << 30


def test_a_worker_has_nothing_of_its_caller(pool, monkeypatch, tmp_path):
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        names = pool.call("sorted(__import__('os').environ)").result
        files = pool.call("[__import__('os').path.realpath(f'/proc/self/fd/{n}') for n in range(100)]").result
        own_session = pool.call("__import__('os').getsid(0)").result
        assert file.name not in files
    assert "SECRET_TOKEN" not in names
    assert own_session not in {os.getsid(0), 0}


def test_the_children_of_a_killed_worker_go_with_it():
    child = "__import__('subprocess').Popen(['sleep', '600']).pid"
    with Workers("builtins:eval", size=1, timeout_s=0.2) as pool:
        pid = pool.call(child).result
        assert pool.call(HANG).outcome is Outcome.TIMEOUT
        assert gone(pid)


def test_32_threads(pool):
    def job(i):
        return pool.call(HANG if i % 40 == 0 else str(i))

    with ThreadPoolExecutor(32) as threads:
        replies = list(threads.map(job, range(200)))
    for i, reply in enumerate(replies):
        assert reply.outcome is (Outcome.TIMEOUT if i % 40 == 0 else Outcome.DONE)
        assert reply.result == (None if i % 40 == 0 else i)


def test_a_worker_outlives_the_thread_that_started_it(pool):
    pids = []
    thread = threading.Thread(target=lambda: pids.append(pool.call(PID).result))
    thread.start()
    thread.join()
    assert pool.call(PID).result == pids[0]


def test_asyncio(pool):
    async def jobs():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.create_task(tick())
        replies = await asyncio.gather(*(pool.acall(job) for job in ["1 + 1", HANG, "2 + 2"]))
        ticking.cancel()
        return [r.result for r in replies], ticks

    results, ticks = asyncio.run(jobs())
    assert results == [2, None, 4]
    assert ticks > 1


def test_a_forked_child_has_workers_of_its_own():
    code = f"""
        import os
        from tossup.verifiers.workers import Workers
        pool = Workers("builtins:eval", size=2)
        first = pool.call({PID!r}).result
        child = os.fork()
        if child == 0:
            mine = pool.call({PID!r}).result
            print(mine, pool.call("6 * 7").result, flush=True)
            os._exit(0 if mine != first else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert pool.call({PID!r}).result == first
        print(first)
    """
    process = script(code)
    output = process.communicate()[0].split()
    assert process.returncode == 0
    assert output[1] == "42"
    assert gone(int(output[0]), int(output[2]))


def in_spawned_process(job):
    with Workers("builtins:eval", size=1, timeout_s=0.3) as pool:
        return pool.call(job)


def test_a_spawned_process():
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as processes:
        assert processes.submit(in_spawned_process, "6 * 7").result().result == 42
        assert processes.submit(in_spawned_process, HANG).result().outcome is Outcome.TIMEOUT


HUNG_CALLER = f"""
    import threading
    from tossup.verifiers.workers import Workers
    pool = Workers("builtins:eval", size=3, timeout_s=600)
    pids = [r.result for r in pool.map([["__import__('time').sleep(0.2) or " + {PID!r}]] * 3)]
    print(*pids, flush=True)
    for job in [{HANG!r}, "__import__('time').sleep(600)"]:
        threading.Thread(target=pool.call, args=(job,), daemon=True).start()
    {{end}}
"""


def test_no_worker_outlives_a_caller_that_is_killed():
    process = script(HUNG_CALLER.format(end="threading.Event().wait()"))
    pids = [int(p) for p in process.stdout.readline().split()]
    assert all(alive(pid) for pid in pids)
    process.kill()
    process.communicate()
    assert gone(*pids)


def test_no_worker_outlives_a_caller_that_ends():
    process = script(HUNG_CALLER.format(end="pass"))
    pids = [int(p) for p in process.communicate()[0].split()]
    assert process.returncode == 0
    assert len(set(pids)) >= 1
    assert gone(*pids)


@pytest.mark.parametrize("signals", [True, False], ids=["by a signal", "by a thread"])
def test_how_a_worker_learns_that_its_caller_is_gone(signals):
    code = f"""
        import os, sys, time
        from tossup.verifiers import _worker
        if not {signals}:
            def refuse(*args):
                raise OSError(22, "no signals for pipes here")
            _worker.fcntl.fcntl = refuse
        _worker.die_with(int(sys.argv[1]))
        print("ready", flush=True)
        while True:
            time.sleep(0.01)
    """
    lifeline, ours = os.pipe()
    command = [sys.executable, "-c", textwrap.dedent(code), str(lifeline)]
    with subprocess.Popen(command, pass_fds=[lifeline], stdout=subprocess.PIPE, text=True) as process:
        os.close(lifeline)
        assert process.stdout.readline() == "ready\n"
        assert process.poll() is None
        os.close(ours)
        assert process.wait(timeout=60) == -signal.SIGKILL


def test_a_tighter_limit_of_the_machine_is_kept():
    code = """
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))
        from tossup.verifiers.workers import Workers
        with Workers("builtins:eval", size=1, memory_mb=4096) as pool:
            print(pool.call("__import__('resource').getrlimit(__import__('resource').RLIMIT_AS)").result)
    """
    assert script(code).communicate()[0] == f"[{1 << 29}, {1 << 29}]\n"


def test_a_dropped_pool_takes_its_workers_along():
    pool = Workers("builtins:eval", size=1)
    pid = pool.call(PID).result
    del pool
    assert gone(pid)


def test_a_pool_at_rest_has_no_process_and_goes_on_when_asked(pool):
    pid = pool.call(PID).result
    pool.rest()
    assert not alive(pid)
    assert [r.result for r in pool.map([["6 * 7"]] * 4)] == [42] * 4


def test_without_waiting_no_job_is_done(pool):
    with workers.WithoutWaiting(), pytest.raises(workers.WouldWait):
        pool.call("1")
    assert pool.call("1").result == 1


def test_a_closed_pool_says_so(pool):
    pid = pool.call(PID).result
    pool.close()
    assert not alive(pid)
    with pytest.raises(TossupError, match="workers for builtins:eval are closed"):
        pool.call("1")


def test_closing_releases_those_who_wait():
    pool = Workers("builtins:eval", size=1, timeout_s=600)
    pid = pool.call(PID).result
    errors = []

    def wait(job):
        try:
            pool.call(job)
        except TossupError as e:
            errors.append(str(e))

    threads = [threading.Thread(target=wait, args=(job,)) for job in [HANG, "1", "2"]]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    pool.close()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)
    assert all("are closed" in e for e in errors)
    assert not alive(pid)


@pytest.mark.parametrize("function", ["no_such_module_here:f", "math:no_such_function", "time"])
def test_a_function_that_does_not_load_is_an_error_that_names_it(function):
    with Workers(function) as pool, pytest.raises(TossupError, match=f"'{function}' does not load"):
        pool.call("1")


def test_the_size_comes_from_the_machine_or_the_environment(monkeypatch):
    monkeypatch.delenv(SIZE_VARIABLE, raising=False)
    assert 1 <= Workers("math:sqrt").size <= os.cpu_count()
    monkeypatch.setenv(SIZE_VARIABLE, "5")
    assert Workers("math:sqrt").size == 5
    for text in ["0", "-1", "many", "2.5", "٣"]:
        monkeypatch.setenv(SIZE_VARIABLE, text)
        with pytest.raises(TossupError, match="TOSSUP_WORKERS is"):
            Workers("math:sqrt")
