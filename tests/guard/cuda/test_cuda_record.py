"""A failed CUDA allocation leaves its exact figures, and changes nothing for the server.

On pretend cards no GPU is involved: torch's own allocator, observer and messages run on a stand-in CUDA runtime.
"""

from __future__ import annotations

import json

import pytest

from guard.failure import LINE_LIMIT_BYTES
from tests.guard.cuda.host import GIB, MIB, CudaHost, records, without_noise

pytestmark = [pytest.mark.torch, pytest.mark.gpu]

FILL = """
only_a_gibibyte()
kept = []
def serve():
    while True:
        kept.append(take(100))
"""


def _check_figures(fields: dict[str, object], host: CudaHost) -> None:
    """What must be exact on any card; what only a pretend one decides is exact there."""
    assert (fields["device"], fields["requested_bytes"], fields["source"]) == (0, 100 * MIB, "torch")
    assert fields.get("limit_bytes", fields["total_bytes"]) == GIB
    assert fields["allocated_bytes"] == fields["reserved_bytes"]
    assert (fields["ooms"], fields["inactive_split_bytes"]) == (1, 0)
    assert "figures" not in fields
    if host.cards is not None:
        assert (fields["free_bytes"], fields["total_bytes"], fields["allocated_bytes"]) == (12 * MIB, GIB, 1000 * MIB)
        assert fields["retries"] == 1


def test_fatal_is_exact_in_three_places(host: CudaHost) -> None:
    """Box, standard error and termination log hold the allocation that ended the process; once, before it ended."""
    ended = host.run(FILL + "serve()")
    assert ended.returncode == 1
    (failure,) = host.failures
    assert (failure.kind, failure.exception, failure.fatal, failure.thread) == (
        "cuda_out_of_memory",
        "torch.OutOfMemoryError",
        True,
        "MainThread",
    )
    _check_figures(dict(failure.fields), host)
    assert failure.message.startswith(
        "CUDA out of memory. Tried to allocate 100.00 MiB. GPU 0 has a total capacity of "
    )
    assert [frame.split()[-1] for frame in failure.stack] == ["<module>", "serve", "take"]
    observed, fatal = records(ended)
    assert (observed["fatal"], fatal["fatal"]) == (False, True)
    for record in (observed, fatal):
        _check_figures(record, host)
        assert record["stack"] == list(failure.stack)
        assert record["do"].startswith("the GPU is full")
    assert all(len(line) < LINE_LIMIT_BYTES for line in ended.lines)
    first, do, line = host.termination_log.splitlines()
    assert first.startswith("oomguard: cuda_out_of_memory: torch.OutOfMemoryError: CUDA out of memory. Tried to")
    assert do.startswith("what to do: the GPU is full")
    assert json.loads(line) == fatal


def test_the_host_sees_its_own_exception(host: CudaHost) -> None:
    """Status, exception type, text and traceback are those of a run without the guard."""
    plain = host.run(FILL + "serve()", install="")
    guarded = host.run(FILL + "serve()")
    assert (plain.returncode, plain.out) == (guarded.returncode, guarded.out)
    plain_lines, own_lines = (without_noise(one.own_err).splitlines() for one in (plain, guarded))
    assert plain_lines[:-1] == own_lines[:-1]
    assert len(plain_lines) == len(own_lines)
    assert plain_lines[-1].partition("GPU 0")[0] == own_lines[-1].partition("GPU 0")[0]  # free memory may differ


def test_survived_ones_are_events(host: CudaHost) -> None:
    """One that a thread or a task had, or that was caught, is one record with what was going on, and not fatal."""
    code = """
import asyncio, threading
only_a_gibibyte()
too_much = 5000
def in_thread():
    with guard.tag("request 7"), guard.loading("weights.bin", 100) as load:
        load.progress("layer.3", 42)
        take(too_much)
thread = threading.Thread(target=in_thread, name="worker"); thread.start(); thread.join()
one = failures()
async def lost():
    with guard.tag("task 8"):
        take(too_much + 1)
async def main():
    task = asyncio.ensure_future(lost())
    await asyncio.sleep(0); await asyncio.sleep(0)
    del task
asyncio.run(main())
two = failures()[1:]
for _ in range(3):
    try:
        take(too_much + 2)
    except torch.OutOfMemoryError as error:
        guard.report(error)
three = failures()[2:]
print(json.dumps([one, two, three, guard.status().trouble_count]))
"""
    ended = host.run(code)
    one, two, three, troubles = json.loads(ended.out.splitlines()[-1])
    assert troubles == 0
    ((kind, fatal, thread, fields),) = one
    assert (kind, fatal, thread) == ("cuda_out_of_memory", False, "worker")
    assert fields["in_flight"] == "guard.loading weights.bin layer.3 42/100"
    assert fields["tag"] == "request 7"
    ((kind, fatal, _, fields),) = two
    assert (kind, fatal, fields["tag"], "in_flight" in fields) == ("cuda_out_of_memory", False, "task 8", False)
    ((_, fatal, _, fields),) = three
    assert (fatal, fields["times"], fields["requested_bytes"]) == (False, 3, 5002 * MIB)
    assert ended.returncode == 0
    assert host.termination_log == ""
    assert [record["fatal"] for record in records(ended)] == [False] * 5


def test_from_a_pool_to_the_end(host: CudaHost) -> None:
    """One that a pool's thread had and that ends the main thread is one fatal record, of the thread that had it."""
    code = """
from concurrent.futures import ThreadPoolExecutor
only_a_gibibyte()
with ThreadPoolExecutor(1, thread_name_prefix="pool") as pool:
    try:
        pool.submit(take, 5000).result()
    except torch.OutOfMemoryError as error:
        raise RuntimeError("engine died") from error
"""
    ended = host.run(code)
    (failure,) = host.failures
    assert (failure.kind, failure.fatal, failure.thread) == ("cuda_out_of_memory", True, "pool_0")
    assert (failure.exception, failure.message) == ("RuntimeError", "engine died")
    assert failure.fields["requested_bytes"] == 5000 * MIB
    assert failure.stack[-1].endswith(" take")
    assert [record["fatal"] for record in records(ended)] == [False, True]


def test_in_backward(host: CudaHost) -> None:
    """In torch's backward thread, which runs no Python, the record names that thread."""
    code = """
only_a_gibibyte()
a = torch.empty(300 * MIB // 4, device="cuda", requires_grad=True)
b = a * 2
try:
    b.backward(torch.empty(300 * MIB // 4, device="cuda"))
except torch.OutOfMemoryError:
    pass
print(json.dumps(failures()), flush=True)
import os
os._exit(0)  # torch's thread may still drop its tensors: at an interpreter's end that is std::terminate, guard or not
"""
    ((kind, _, thread, fields),) = host.told(code)
    assert (kind, fields["requested_bytes"]) == ("cuda_out_of_memory", 300 * MIB)
    assert thread.startswith("pt_autograd")
    assert host.failures[0].stack == ()


def test_the_hot_path_is_untouched(host: CudaHost) -> None:
    """Installing replaces no function of torch but `load`, and sets no mode: an allocation runs torch alone."""
    code = """
places = [torch, torch.Tensor, torch.cuda, torch.cuda.memory, torch.nn.functional, torch._C]
before = [dict(vars(place)) for place in places]
guard.install()
torch.zeros(1).cuda()
changed = {name for place, seen in zip(places, before) for name in seen if vars(place).get(name) is not seen[name]
           if callable(seen[name])}
print(json.dumps([sorted(changed), torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()]))
"""
    changed, dispatch, function = host.told(code, install="")
    assert changed == ["load"]
    assert (dispatch, function) == (0, 0)


def test_after_fork(host: CudaHost) -> None:
    """A child forked before CUDA is up records into its own box; CUDA stays down in the parent."""
    code = """
child = os.fork()
if not child:
    only_a_gibibyte()
    try:
        take(5000)
    except torch.OutOfMemoryError as error:
        guard.report(error)
    print(json.dumps(failures()), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(json.dumps([torch.cuda.is_initialized(), failures(), guard.status().cuda["observer"]]))
"""
    ended = host.run(code)
    of_child, of_parent = (json.loads(line) for line in ended.out.splitlines())
    ((kind, fatal, _, fields),) = of_child
    assert (kind, fatal, fields["requested_bytes"]) == ("cuda_out_of_memory", False, 5000 * MIB)
    assert of_parent == [False, [], "waits for CUDA"]


def test_uninstalled_guard_is_silent(host: CudaHost) -> None:
    """After uninstall the observer records nothing, and a queued one is taken back; installed again it records."""
    code = """
queued = len(torch.cuda._queued_calls)
first = guard.install()
first.uninstall()
assert len(torch.cuda._queued_calls) == queued - 1
second = guard.install()
only_a_gibibyte()
second.uninstall()
for guarded in (False, True):
    if guarded:
        guard.install()
    try:
        take(5000)
    except torch.OutOfMemoryError:
        pass
print(json.dumps(len(failures())))
"""
    ended = host.run(code)
    assert json.loads(ended.out) == 1
    assert len(ended.lines) == 1


def test_an_error_of_ours_changes_nothing(host: CudaHost) -> None:
    """With a broken box and a broken record the server gets its OutOfMemoryError; `status()` tells of the trouble."""
    code = """
only_a_gibibyte()
from guard.keeper import keeper
from guard.cuda import record
class Broken:
    path, fd = os.path.join(os.environ["OOMGUARD_DIR"], "broken.box"), 3
    def __getattr__(self, name): raise LookupError("broken box")
keeper.box = Broken()
def broken(*_): raise LookupError("broken record")
record.allocator = broken
try:
    take(5000)
except Exception as error:
    print(json.dumps([type(error).__name__, str(error)[:17], list(guard.status().troubles)]))
"""
    name, text, troubles = host.told(code, OOMGUARD_FENCE="")
    assert (name, text) == ("OutOfMemoryError", "CUDA out of memor")
    assert "cuda record: LookupError: broken record" in troubles
    assert "box: LookupError: broken box" in troubles
