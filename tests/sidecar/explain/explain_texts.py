"""Texts that servers, kernels and tools print, by the class that they stand for. "" : nothing ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.sidecar.explain.explain_texts_gpu import GPU_TEXTS

_DELETED_POD: Final = """kind: Pod
metadata:
  name: llm-0
  deletionGracePeriodSeconds: 30
  deletionTimestamp: "2025-02-03T04:05:36Z"
status:
  containerStatuses:
  - name: model
    state:
      terminated:
        exitCode: 143
        reason: Error
        finishedAt: "2025-02-03T0{hour}:05:10Z\""""
"""An end that the deletion explains where it came after the request at 4:05:06, not an hour before."""

TEXTS: Final[Mapping[str, tuple[str, ...]]] = {
    "gpu_allocation_failure": GPU_TEXTS,
    "host_allocation_failure": (
        (
            "ResourceExhaustedError: OOM when allocating tensor with shape[3200,51200,1024] and type "
            "float on /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu"
        ),
        (
            "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 17.9 GiB for an array with "
            "shape (60000, 40000) and data type float64"
        ),
        "MemoryError",
        ('Traceback (most recent call last):\n  File "x.py", line 1\nMemoryError: Unable to allocate internal buffer.'),
        (
            "terminate called after throwing an instance of 'std::bad_alloc'\n"
            "  what():  std::bad_alloc\n"
            "Aborted (core dumped)"
        ),
        ("memory allocation of 5368709120 bytes failed\nAborted (core dumped)"),
        "OSError: [Errno 12] Cannot allocate memory",
        (
            "RuntimeError: unable to mmap 10737418240 bytes from file </models/x.safetensors>: "
            "Cannot allocate memory (12)"
        ),
        ("llama_model_load: error: model requires more system memory (12.5 GiB) than is available (7.4 GiB)"),
        ("FATAL server failed during startup | cudaMallocHost failed: cudaErrorMemoryAllocation: out of memory"),
        "ggml_cuda_host_malloc: failed to allocate 1900,00 MiB of pinned memory: invalid argument",
        "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory",
        (
            "E0000 external/xla/xla/stream_executor/cuda/cuda_driver.cc:1] failed to alloc "
            "8589934592 bytes on host: RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY: out of memory"
        ),
        'Exception in thread "main" java.lang.OutOfMemoryError: Java heap space',
    ),
    "unknown": (
        "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
        ("RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
        "service vllm exited with code 137",
        "command terminated with exit code 137",
        "./run.sh: line 3:    12 Killed                  python serve.py",
        ("billiard.exceptions.WorkerLostError: Worker exited prematurely: signal 9 (SIGKILL) Job: 0."),
        (
            "Sep 10 14:59:49 image systemd[1]: vllm.service: Main process exited, code=killed, "
            "status=9/KILL\n"
            "Sep 10 14:59:49 image systemd[1]: vllm.service: Failed with result 'signal'."
        ),
        (
            "  containerStatuses:\n"
            "  - containerID: containerd://x\n"
            "    lastState:\n"
            "      terminated:\n"
            "        exitCode: 137\n"
            "        reason: Error\n"
            '        finishedAt: "2024-01-01T01:00:00Z"\n'
            "    name: vllm\n"
            "    restartCount: 2\n"
            "    state:\n"
            "      running:\n"
            '        startedAt: "2024-01-01T01:00:03Z"'
        ),
        (
            "2024-01-01T00:00:01Z container die 9a0018abdad2f7ed48b56848a498461b1561304f5d6b3518a679b"
            "7767fc2761e (exitCode=137, image=x)"
        ),
        'level=ERROR msg="llama runner terminated" error="signal: killed"',
        "RuntimeError: CUDA error: unknown error",
        "2024-01-01 00:00:00,000 INFO exited: vllm (terminated by SIGKILL; not expected)",
        "vllm-1 exited with code 137",
        "INFO:     Child process [12] died",
    ),
    "shm_exhausted": (
        "RuntimeError: unable to write to file </torch_1234_567>: No space left on device (28)",
        (
            "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient "
            "shared memory (shm).\n"
            "RuntimeError: DataLoader worker (pid 123) is killed by signal: Bus error. It is "
            "possible that dataloader's workers are out of shared memory. Please try to raise your "
            "shared memory limit."
        ),
        (
            "misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-8Qw2xX to 9637892 "
            "bytes\n"
            "Error while creating shared memory segment /dev/shm/nccl-8Qw2xX (size 9637888)"
        ),
        (
            "RuntimeError: unable to open shared memory object </torch_29919_1396182366> in "
            "read-write mode: Too many open files (24)"
        ),
    ),
    "userspace_oom": (
        (
            'earlyoom[12]: sending SIGKILL to process 99 uid 0 "python": oom_score 1200, '
            'oom_score_adj 0, VmRSS 9000 MiB, cmdline "python x"'
        ),
        (
            "Nov 10 10:00:00 h systemd-oomd[700]: Killed "
            "/user.slice/user-1000.slice/user@1000.service/app.slice/app-x.scope due to memory used "
            "(16000000) / total (16400000) and swap used (8000000) / total (8100000) being more than "
            "90.00%"
        ),
        (
            "(raylet) 3 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers "
            "crashed due to other reasons at node (ID: abc, IP: 192.0.2.1) over the last time period."
        ),
        "distributed.worker.memory - WARNING - Worker exceeded 95% memory budget. Restarting",
        "lowmemorykiller: Kill 'com.foo' (1234), uid 10123, oom_score_adj 900 to free 12345kB rss",
        (
            "Sep 10 14:59:49 image systemd-oomd[34]: Considered 2 cgroups for killing, top "
            "candidates were:\n"
            "Sep 10 14:59:49 image systemd[1]: a.scope: systemd-oomd killed some process(es) in this "
            "unit.\n"
            "Sep 10 14:59:50 image systemd[1]: a.scope: Failed with result 'oom-kill'."
        ),
    ),
    "cgroup_oom": (
        'Terminated  Exit Code: 137, Exit Message: "OOM Killed"',
        (
            "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=123.0. Some of your processes "
            "may have been killed by the cgroup out-of-memory handler."
        ),
        "my-pod-0   0/1     OOMKilled   3 (35s ago)   2m",
        (
            "Sep 10 14:59:49 image systemd[1]: vllm.service: A process of this unit has been killed "
            "by the OOM killer.\n"
            "Sep 10 14:59:49 image systemd[1]: vllm.service: Main process exited, code=killed, "
            "status=9/KILL\n"
            "Sep 10 14:59:49 image systemd[1]: vllm.service: Failed with result 'oom-kill'."
        ),
        (
            "<6>[ 12.500000] Memory cgroup out of memory: Killed process 9 (x) total-vm:1kB, "
            "anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:4kB oom_score_adj:0"
        ),
        (
            "6,1234,98765432,-;Memory cgroup out of memory: Killed process 9 (x) total-vm:1kB, "
            "anon-rss:1kB, file-rss:0kB"
        ),
        (
            '{"__REALTIME_TIMESTAMP":"1700000000000000","MESSAGE":"Memory cgroup out of memory: '
            "Killed process 9 (x) total-vm:1kB, anon-rss:1kB, "
            'file-rss:0kB","_TRANSPORT":"kernel","SYSLOG_IDENTIFIER":"kernel"}'
        ),
        (
            "__CURSOR=s=abc\n"
            "__REALTIME_TIMESTAMP=1700000000000000\n"
            "_TRANSPORT=kernel\n"
            "MESSAGE=Memory cgroup out of memory: Killed process 9 (x) total-vm:1kB, anon-rss:1kB\n"
            "\n"
        ),
        (
            '{"log":"x\\n","stream":"stderr","time":"2024-01-01T00:00:00Z"}\n'
            '[{"Id":"aa","State":{"Status":"exited","Running":false,"OOMKilled":true,"ExitCode":137,"'
            'StartedAt":"2024-01-01T00:00:00Z","FinishedAt":"2024-01-01T01:00:00Z"}}]'
        ),
        (
            '{"status":{"containerStatuses":[{"name":"vllm","restartCount":3,"lastState":{"terminated'
            '":{"exitCode":137,"reason":"OOMKilled","startedAt":"2024-01-01T00:00:00Z","finishedAt":"'
            '2024-01-01T01:00:00Z","containerID":"containerd://9a0018abdad2f7ed48b56848a498461b156130'
            '4f5d6b3518a679b7767fc2761e"}},"state":{"running":{"startedAt":"2024-01-01T01:00:01Z"}}}]'
            "}}"
        ),
        (
            "2024-01-01T00:00:00Z container oom 9a0018abdad2f7ed48b56848a498461b1561304f5d6b3518a679b"
            "7767fc2761e (image=x)\n"
            "2024-01-01T00:00:01Z container die 9a0018abdad2f7ed48b56848a498461b1561304f5d6b3518a679b"
            "7767fc2761e (exitCode=137, image=x)"
        ),
        (
            '{"stoppedReason":"Essential container in task '
            'exited","containers":[{"name":"a","exitCode":137,"reason":"OutOfMemoryError: Container '
            'killed due to memory usage"}]}'
        ),
        ("oom_kill_disable 0\nunder_oom 0\noom_kill 2"),
        (
            "    Last State:     Terminated\n"
            "      Reason:       OOMKilled\n"
            "      Exit Code:    137\n"
            "Events:\n"
            "  Warning  Unhealthy  2m (x3 over 3m)  kubelet  Liveness probe failed: x connection "
            "refused"
        ),
        (
            '{"ID":"x","State":{"OciVersion":"1.0","Status":"exited","OOMKilled":true,"ExitCode":137,'
            '"StartedAt":"2024-01-01T00:00:00Z","FinishedAt":"2024-01-01T00:01:00Z"}}'
        ),
        (
            '[{"State":{"Status":"running","Running":true,"OOMKilled":true,"ExitCode":0,"StartedAt":"'
            '2024-01-01T00:00:00Z","FinishedAt":"0001-01-01T00:00:00Z"}}]'
        ),
        (
            "memory.events:low 0\n"
            "memory.events:high 0\n"
            "memory.events:max 12\n"
            "memory.events:oom 2\n"
            "memory.events:oom_kill 2"
        ),
        "memory.events: low 0 high 0 max 35 oom 1 oom_kill 1 oom_group_kill 0",
        (
            "/kubepods/memory.events\n"
            "low 0\n"
            "high 0\n"
            "max 0\n"
            "oom 0\n"
            "oom_kill 0\n"
            "/kubepods/pod/memory.events\n"
            "low 0\n"
            "high 0\n"
            "max 9\n"
            "oom 3\n"
            "oom_kill 3"
        ),
        (
            "● vllm.service - x\n"
            "     Loaded: loaded (/etc/x; enabled)\n"
            "     Active: failed (Result: oom-kill) since Mon 2024-01-01 00:00:00 UTC; 1h ago\n"
            "    Process: 123 ExecStart=/x (code=killed, signal=KILL)\n"
            "   Main PID: 123 (code=killed, signal=KILL)"
        ),
        (
            "0s  Warning  OOMKilling  node/gke-1  Memory cgroup out of memory: Killed process 123 "
            "(python) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:4kB "
            "oom_score_adj:999"
        ),
    ),
    "global_oom": (
        ("Warning  SystemOOM  5m  kubelet  System OOM encountered, victim process: python, pid: 12345"),
        "Kernel panic - not syncing: Out of memory: system-wide panic_on_oom is enabled",
    ),
    "eviction": (
        (
            "3m   Warning   Evicted   pod/llm-0   The node was low on resource: memory.\n"
            "2m   Normal    Killing   pod/llm-0   Stopping container model"
        ),
        (
            "Warning  Evicted  2m  kubelet  The node was low on resource: memory. Threshold "
            "quantity: 100Mi, available: 72Mi. Container vllm was using 50Gi, request is 10Gi, has "
            "larger consumption of memory."
        ),
        "Warning  Preempted  2m  default-scheduler  Preempted by pod abc on node x",
        ("status:\n  message: The node had condition: [MemoryPressure].\n  phase: Failed\n  reason: Evicted"),
        'Usage of EmptyDir volume "dshm" exceeds the limit "1Gi".',
    ),
    "deletion": (
        (
            "Feb 03 04:06:36 host systemd[1]: llm.service: State 'stop-sigterm' timed out. Killing.\n"
            "Feb 03 04:06:36 host systemd[1]: llm.service: Main process exited, code=killed, status=9/KILL"
        ),
        _DELETED_POD.format(hour=4),
        "  Normal  Killing  10s  kubelet  Stopping container vllm",
        ("status:\n  phase: Failed\n  reason: DeadlineExceeded"),
    ),
    "health_check": (
        (
            "Oct 01 10:20:00 host systemd[1]: vllm.service: Watchdog timeout (limit 30s)!\n"
            "Oct 01 10:20:00 host systemd[1]: vllm.service: Killing process 1234 (python) with signal SIGABRT.\n"
            "Oct 01 10:20:01 host systemd[1]: vllm.service: Main process exited, code=dumped, status=6/ABRT\n"
            "Oct 01 10:20:01 host systemd[1]: vllm.service: Failed with result 'watchdog'."
        ),
        (
            'I0203 04:05:06.689012 1 prober.go:117] "Liveness probe failed" pod="ai/llm-0" output="deadline exceeded"\n'
            'I0203 04:05:06.789012 1 run.go:663] "Killing container with a grace period" pod="ai/llm-0" gracePeriod=30'
        ),
        (
            "Warning  Unhealthy  2m  kubelet  Startup probe failed: HTTP probe failed with "
            "statuscode: 503\n"
            "Normal  Killing  2m  kubelet  Container vllm failed startup probe, will be restarted"
        ),
        (
            "Sep 10 14:59:49 image systemd[1]: vllm.service: start operation timed out. Terminating.\n"
            "Sep 10 14:59:50 image systemd[1]: vllm.service: Failed with result 'timeout'."
        ),
        (
            '{"stoppedReason":"Task failed ELB health checks in (target-group '
            'arn)","containers":[{"name":"a","exitCode":137}]}'
        ),
        (
            "    Last State:     Terminated\n"
            "      Reason:       Error\n"
            "      Exit Code:    137\n"
            "    Ready: True\n"
            "Events:\n"
            "  Warning  Unhealthy  2m (x3 over 3m)  kubelet  Liveness probe failed: HTTP probe "
            "failed with statuscode: 500\n"
            "  Normal  Killing  2m  kubelet  Container vllm failed liveness probe, will be restarted"
        ),
        (
            "    Last State:     Terminated\n"
            "      Reason:       Error\n"
            "      Exit Code:    143\n"
            "Events:\n"
            "  Normal  Killing  2m  kubelet  Container vllm failed liveness probe, will be restarted"
        ),
    ),
    "": (
        (
            "warning: failed to mlock 4096-byte buffer (after previously locking 0 bytes): Cannot allocate memory\n"
            "llama server listening at http://127.0.0.1:8080"
        ),
        (
            "Traceback (most recent call last):\n"
            '  File "/app/serve.py", line 9, in handle\n'
            "ValueError: prompt too long\n"
            'INFO: 127.0.0.1:5000 - "POST /generate HTTP/1.1" 400 Bad Request'
        ),
        "WARNING: KV cache pool is full. Retract requests. #retracted_reqs: 3",
        "If you run out of memory try lowering --batch",
        "INFO preempted because there is not enough KV cache space",
        ("Sep 1 10:00:00 h earlyoom[1]: mem avail: 100 of 1000 MiB (10.0%), swap free: 0 of 0 MiB (0.00%)"),
        ("Oct 1 h systemd-oomd[1]: Memory pressure for /user.slice is 61.2% > 60.00% for > 20s with reclaim activity"),
        "container exited with code 0",
        ("* vllm\n   Active: active (running) since Mon"),
        (
            "    State:          Running\n"
            "      Started:      Sun, 11 Aug 2024 19:00:04 +0200\n"
            "    Ready:          True\n"
            "    Restart Count:  0"
        ),
        ("    State:          Waiting\n      Reason:       ContainerCreating\n    Ready:          False"),
        ("    State:          Terminated\n      Reason:       Completed\n      Exit Code:    0"),
        ("low 0\nhigh 12\nmax 0\noom 0\noom_kill 0"),
        ("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0"),
        ("anon 1234\nfile 99\nkernel 12\nshmem 0"),
        (
            "Warning  Unhealthy  2s (x20 over 3m)  kubelet  Readiness probe failed: HTTP probe "
            "failed with statuscode: 503"
        ),
        (
            '[{"State":{"Status":"running","Running":true,"OOMKilled":false,"ExitCode":0,"StartedAt":'
            '"2024-01-01T00:00:00Z","FinishedAt":"0001-01-01T00:00:00Z"}}]'
        ),
        (
            '[{"State":{"Status":"exited","Running":false,"OOMKilled":false,"ExitCode":0,"FinishedAt"'
            ':"2024-01-01T00:00:00Z"}}]'
        ),
        ("some avg10=1.50 avg60=0.20 avg300=0.01 total=123\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5"),
        ("MemTotal:       263940716 kB\nMemFree:         1000 kB\nMemAvailable:   20000 kB\nSwapTotal: 0 kB"),
        ("oom_kill 5\npgmajfault 12\npgscan_kswapd 100"),
        ("anon 2141384704\nfile 1000\nkernel 1\nfile_mapped 10\nworkingset_refault_anon 0\npgscan 100"),
        (
            "2024-01-01T00:00:00Z container health_status: unhealthy "
            "9a0018abdad2f7ed48b56848a498461b1561304f5d6b3518a679b7767fc2761e (image=x)"
        ),
    ),
    "device_reset": (
        (
            "kernel: NVRM: Xid (PCI:0000:3b:00): 48, pid='<unknown>', name=<unknown>, An "
            "uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at "
            "partition 5, subpartition 0.\n"
            "kernel: NVRM: Xid (PCI:0000:3b:00): 45, pid=2911, name=python, Ch 00000010"
        ),
        (
            "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the "
            "system to recover this GPU"
        ),
        (
            "NVRM: Xid (PCI:0000:ca:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 12\n"
            "NVRM: Xid (PCI:0000:ca:00): 45, pid=1, name=python"
        ),
        "[1234.5] NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.",
        (
            "[  9.000001] NVRM: Xid (PCI:0000:18:00): 119, pid=88, name=python, Timeout after 6s of "
            "waiting for RPC response from GPU0 GSP!"
        ),
        ("amdgpu 0000:03:00.0: amdgpu: GPU reset begin!\namdgpu 0000:03:00.0: amdgpu: GPU reset(2) succeeded!"),
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    ),
    "application_exit": (
        (
            "Traceback (most recent call last):\n"
            '  File "/app/load.py", line 9, in <module>\n'
            '    weights = load_file("model.safetensors")\n'
            "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer"
        ),
        (
            "RuntimeError: CUDA error: an illegal memory access was encountered\n"
            "[rank0]: watchdog thread terminated with exception: CUDA error: unspecified launch failure\n"
            "NVRM: Xid (PCI:0000:65:00): 13, pid=4242, name=python, Graphics SM Warp Exception on (GPC 0, TPC 0, SM 0)"
        ),
        "[1.0] NVRM: Xid (PCI:0000:3b:00): 43, pid=2911, name=python, Ch 00000010",
        "container exited with exit code 1",
        (
            "Sep 10 14:59:49 image systemd[1]: vllm.service: Main process exited, code=exited, "
            "status=1/FAILURE\n"
            "Sep 10 14:59:49 image systemd[1]: vllm.service: Failed with result 'exit-code'."
        ),
        ("RuntimeError: Prefill out of memory. Try to lower your batch size.\nTry to allocate 8192 tokens."),
        (
            '{"kind":"Pod","status":{"containerStatuses":[{"name":"a","lastState":{},"state":{"termin'
            'ated":{"exitCode":1,"reason":"Error","finishedAt":"2024-01-01T01:00:00Z"}}}]}}'
        ),
        "RuntimeError: CUDA error: an illegal memory access was encountered",
    ),
    "crash_signal": (
        "kernel: Memory failure: 0x12a4: Sending SIGBUS to python:1234 due to hardware memory corruption",
        "python exited with code 139",
        ("dmesg: python[1234]: segfault at 7f0 ip 00007f sp 00007f error 4 in libtorch_cuda.so[7f+1000]"),
        ("Fatal Python error: Segmentation fault\n\nCurrent thread 0x0000 (most recent call first):"),
        ("terminate called after throwing an instance of 'c10::Error'\nAborted (core dumped)"),
    ),
    "external_kill": (
        _DELETED_POD.format(hour=3),
        (
            "2024-01-01T00:00:00Z container kill 9a0018abdad2f7ed48b56848a498461b1561304f5d6b3518a679"
            "b7767fc2761e (image=x, signal=15)\n"
            "2024-01-01T00:00:10Z container kill 9a0018abdad2f7ed48b56848a498461b1561304f5d6b3518a679"
            "b7767fc2761e (image=x, signal=9)\n"
            "2024-01-01T00:00:10Z container die 9a0018abdad2f7ed48b56848a498461b1561304f5d6b3518a679b"
            "7767fc2761e (exitCode=137, image=x)"
        ),
    ),
}
