"""How shells, launchers, process managers and batch systems say that a program ended. A pair: classes, text."""

from __future__ import annotations

from typing import Final

_PODS: Final = "NAME      READY   STATUS             RESTARTS      AGE\n"
_SPACES: Final = "NAMESPACE   NAME      READY   STATUS             RESTARTS      AGE\n"

ENDINGS_TEXTS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    # Shells and launchers
    (("unknown",), "zsh: killed     python serve.py"),
    (("crash_signal",), "[1]    48123 segmentation fault (core dumped)  python serve.py"),
    (("crash_signal",), "zsh: abort (core dumped)  ./llama-server -m model.gguf"),
    (("unknown",), "fish: Job 1, 'python serve.py' terminated by signal SIGKILL (Forced quit)"),
    (("unknown",), "/bin/sh: line 1: 48123 Killed: 9               python serve.py"),
    (("crash_signal",), "Process finished with exit code 139 (interrupted by signal 11: SIGSEGV)"),
    (("unknown",), "The kernel for serve.ipynb appears to have died. It will restart automatically."),
    (("unknown",), "make[1]: *** [Makefile:12: serve] Error 137"),
    (("unknown",), "Error: Process completed with exit code 137."),
    (("application_exit",), "The job ended with exit code 2."),
    (("unknown",), "[2024-06-10, 06:13:30 UTC] Task exited with return code Negsignal.SIGKILL"),
    (("unknown",), "[2024-06-10, 06:13:30 UTC] Task exited with return code -9"),
    (("unknown",), "subprocess.CalledProcessError: Command '['python', 'x.py']' died with <Signals.SIGKILL: 9>."),
    (("crash_signal",), "subprocess.CalledProcessError: Command '['python']' died with <Signals.SIGSEGV: 11>."),
    (("unknown",), "subprocess.CalledProcessError: Command 'docker run x' returned non-zero exit status 137."),
    (("unknown",), "<Process name='Process-1' pid=4242 parent=4200 stopped exitcode=-SIGKILL>"),
    (("unknown",), "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGKILL"),
    (("unknown",), "PM2        | App [llm:0] exited with code [0] via signal [SIGKILL]"),
    (("external_kill",), "PM2        | App [llm:0] exited with code [0] via signal [SIGTERM]"),
    # Runtimes of languages
    (("crash_signal",), "SIGSEGV: segmentation violation\nPC=0x7f m=5 sigcode=1\nsignal arrived during cgo execution"),
    (("crash_signal",), "*** SIGSEGV received at time=1718000000 on cpu 3 ***\nPC: @     0x7f0a"),
    (("crash_signal",), "#  SIGSEGV (0xb) at pc=0x00007f0a, pid=1, tid=77"),
    (
        ("crash_signal",),
        "[llm-0:88   :0:88] Caught signal 11 (Segmentation fault: address not mapped to object at 0x8)",
    ),
    # Containers
    (("cgroup_oom",), _PODS + "llm-0     0/1     OOMKilled          4 (51s ago)   9m"),
    (("cgroup_oom",), _SPACES + "prod        llm-0     0/1     OOMKilled          4 (51s ago)   9m"),
    (("unknown", "unknown"), _PODS + "llm-0   0/1   CrashLoopBackOff   4   9m\nllm-1   0/1   Error   2   9m"),
    (("eviction",), _PODS + "llm-0     0/1     Evicted            0             9m"),
    ((), _PODS + "llm-0     1/1     Running            4   9m\nllm-1     0/1     ContainerCreating   0   1s"),
    (("cgroup_oom",), "map[Dead:false Error: ExitCode:137 OOMKilled:true Paused:false Running:false Status:exited]"),
    (("cgroup_oom",), "NAME    REASON      EXIT\nllm-0   OOMKilled   137\nllm-1   <none>      <none>"),
    (("cgroup_oom",), "message: OOMKilled (exit code 137)\nphase: Failed"),
    (("cgroup_oom",), "\t container state: terminated\n\t exit code: 137\n\t termination reason: OOMKilled"),
    (
        ("cgroup_oom",),
        '{\n "previousState": {\n  "state": "Terminated",\n  "exitCode": 137,\n  "detailStatus": "OOMKilled"\n }\n}',
    ),
    (("unknown",), 'abc   \\_ llm.1   vllm   Shutdown   "task: non-zero exit (137)"'),
    (
        ("health_check",),
        'abc   \\_ llm.1   vllm   Shutdown   "task: non-zero exit (137): dockerexec: unhealthy container"',
    ),
    (
        ("deletion",),
        (
            '2024-06-10T06:14:35Z  Terminated  Exit Code: 137, Exit Message: "The container exited with non-zero exit '
            'code: 137"\n2024-06-10T06:14:30Z  Killing     Sent interrupt. Waiting 5s before force killing'
        ),
    ),
    (("unknown",), "  Warning  BackOff  3m (x5 over 5m)  kubelet  Back-off restarting failed container"),
    ((), '  Normal   BackOff  3m (x5 over 5m)  kubelet  Back-off pulling image "vllm/vllm-openai:v9"'),
    (("eviction",), "evicting pod prod/llm-0\npod/llm-0 evicted\nnode/gpu-7 drained"),
    (
        ("global_oom",),
        (
            'I0610 06:13:00.123456    1234 oom_watcher_linux.go:75] "Got sys oom event" event="&{Pid:4242 '
            'ProcessName:python3 ContainerName:/ Constraint:CONSTRAINT_NONE}"'
        ),
    ),
    ((), _PODS + "llm-0   0/1   ImagePullBackOff   0   9m\nllm-1   0/1   Completed   0   9m"),
    ((), "Loading shards:   0% Completed | 0/1 [00:00<?, ?it/s]\nepoch 0/1 Error 2 rate"),
    (("cgroup_oom",), "Result=oom-kill\nExecMainStatus=9\nNRestarts=4"),
    ((), "Result=success\nExecMainStatus=0\nNRestarts=0"),
    (
        ("health_check",),
        (
            "     Active: failed (Result: watchdog) since Mon 2024-06-10 06:13:30 UTC; 2min ago\n"
            "   Main PID: 4242 (code=dumped, signal=ABRT)"
        ),
    ),
    # Cards, as device plugins and exporters tell of them
    (
        ("device_reset",),
        "health.go:159] XidCriticalError: Xid=48 on Device=GPU-11111111-2222-3333-4444-555555555555, the",
    ),
    (("device_reset",), 'DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-1111",device="nvidia0"} 79'),
    ((), 'DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-1111",device="nvidia0"} 0'),
    # Loggers that put the failure beside the message
    (
        ("gpu_allocation_failure",),
        '{"message": "worker failed", "exc_info": "torch.OutOfMemoryError: CUDA out of memory."}',
    ),
    (("unknown",), '{"level": "error", "msg": "command failed", "error": "signal: killed"}'),
    (
        ("eviction",),
        (
            '{"kind": "Pod", "metadata": {"deletionTimestamp": "2024-06-10T06:13:30Z"}, "status": {"conditions": '
            '[{"reason": "PreemptionByScheduler"}], "containerStatuses": [{"state": {"terminated": {"exitCode": 137, '
            '"finishedAt": "2024-06-10T06:13:30Z"}}}]}}'
        ),
    ),
    # Engines
    (("gpu_allocation_failure",), "RuntimeError: CUDA failed with error out of memory"),
    (
        ("gpu_allocation_failure",),
        "[ERROR] CUDA runtime error in ::cudaMallocAsync(ptr, n, mPool->getPool(), stream): out of memory",
    ),
    (("gpu_allocation_failure",), "ERROR  TDRV:log_dev_mem  Failed to allocate 1.000GB on ND 0:NC 0"),
    (
        ("gpu_allocation_failure",),
        "[GPU] Exceeded max size of memory object allocation: requested 4294967296 bytes, but max is 4294959104 bytes.",
    ),
    (("gpu_allocation_failure",), "RuntimeError: Insufficient VRAM for model and cache"),
    (("gpu_allocation_failure",), "8007000E Not enough memory resources are available to complete this operation."),
    (
        ("health_check",),
        (
            "[2024-06-10 06:13:33 TP0] Watchdog timeout (self.watchdog_timeout=300)\n"
            "[2024-06-10 06:13:33] Received sigquit from a child process. It usually means the child failed."
        ),
    ),
    # What only speaks of it
    ((), "    except torch.cuda.OutOfMemoryError:\n        logger.warning('retry')"),
    (
        (),
        (
            'INFO Generated response chatcmpl-1: output: "It says Out of memory: Killed process 12 (x) total-vm:9kB, '
            'means", finish_reason: stop'
        ),
    ),
    # Batch systems and platforms
    (("cgroup_oom",), "slurmstepd: error: Detected 1 oom_kill event in StepId=9211443.batch."),
    (("cgroup_oom",), "srun: error: g0616: task 0: Out Of Memory"),
    ((), "slurmstepd: task/cgroup: Detected 0 oom_kill events in StepId=14604003.0"),
    (("external_kill",), "slurmstepd: error: *** STEP 9211443.0 ON g0616 CANCELLED AT 2024-06-10T06:13:30 ***"),
    (("eviction",), "slurmstepd: error: *** JOB 92 ON g0616 CANCELLED AT 2024-06-10T06:13:30 DUE TO PREEMPTION ***"),
    (
        ("cgroup_oom",),
        "\tError from slot1@wn07: Job has gone over cgroup memory limit of 8192 megabytes. Last measured",
    ),
    (
        ("userspace_oom",),
        "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.\nExited with exit code 137.",
    ),
    (("userspace_oom",), "=>> PBS: job killed: mem 67890123kb exceeded limit 67108864kb"),
    (
        ("userspace_oom",),
        "Reason: Container killed by YARN for exceeding memory limits",
    ),
    (("cgroup_oom",), "Memory limit exceeded: Requested: 1056MB Maximum Used: 1056MB"),
    (("cgroup_oom",), "2024-06-10T06:13:30.12+0000 Exit status 137 (out of memory)"),
    (("cgroup_oom",), "Exceeded hard memory limit of 512 MiB with 524 MiB after servicing 31 requests total."),
    (
        ("cgroup_oom",),
        "Error R15 (Memory quota vastly exceeded)\nProcess exited with status 137",
    ),
    ((), "heroku[web.1]: Error R14 (Memory quota exceeded)"),
    # Killers, and what reads like one
    ((), 'sending SIGTERM to process 42 uid 1000 "python3": badness 912\ndryrun, not actually sending any signal'),
    (
        ("userspace_oom",),
        "Implementing a corrective action:\n  Sending SIGTERM to the victim; total response time: 9 ms",
    ),
    (
        ("unknown",),
        (
            "(raylet) node_manager.cc:3065: 0 Workers (tasks / actors) killed due to memory pressure (OOM), 3 Workers "
            "crashed due to other reasons at node (ID: abcd, IP: 10.0.0.7) over the last time period."
        ),
    ),
    (
        ("userspace_oom",),
        (
            "(raylet) node_manager.cc:3065: 10 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers "
            "crashed due to other reasons at node (ID: abcd, IP: 10.0.0.7) over the last time period."
        ),
    ),
    (
        ("host_allocation_failure",),
        (
            "ray.exceptions.ObjectStoreFullError: Failed to put object f because the store is full. Object size is "
            "2147483648 bytes."
        ),
    ),
    (
        ("unknown",),
        "[  812.100000] oom_reaper: reaped process 4242 (python3), now anon-rss:0kB",
    ),
    (("host_allocation_failure",), "fork/exec /bin/sh: cannot allocate memory"),
)
