"""Failures of servers and frameworks, in shapes met late. A pair: the classes of all incidents, the text."""

from __future__ import annotations

from typing import Final

SERVERS_TEXTS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (
        ("gpu_allocation_failure",),
        (
            "THCudaCheck FAIL file=/pytorch/aten/src/THC/THCStorage.cu line=58 error=2 : out of memory\n"
            "RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/THCStorage.cu:58"
        ),
    ),
    (
        ("gpu_allocation_failure",),
        (
            "[2025-09-13 09:10:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
            '  File "/sgl-workspace/sglang/python/sglang/srt/managers/scheduler.py", line 2500, in run_scheduler_'
            "process\n"
            "    scheduler = Scheduler(server_args, port_args, gpu_id, tp_rank, pp_rank, dp_rank)\n"
            "ValueError: Not enough memory. Please try increasing --mem-fraction-static. Current value: server_ar"
            "gs.mem_fraction_static=0.7\n"
            "[2025-09-13 09:10:00] Received sigquit from a child process. It usually means the child failed."
        ),
    ),
    (
        ("application_exit",),
        (
            "[2025-09-13 09:09:15 TP0] Decode batch. #running-req: 4, #token: 9071, token usage: 0.01\n"
            "[2025-09-13 09:09:16 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
            "RuntimeError: alloc_req_slots runs out of memory. Please set a smaller number for `--max-running-req"
            "uests`. req_to_token_pool.available_size()=1, num_reqs=2"
        ),
    ),
    (
        ("gpu_allocation_failure",),
        (
            "ggml_metal_buffer_type_alloc_buffer: error: failed to allocate buffer, size = 1024.00 MiB\n"
            "llama_model_load: error loading model: unable to allocate Metal buffer"
        ),
    ),
    (
        ("gpu_allocation_failure",),
        (
            "ggml_metal_graph_compute: command buffer 0 failed with status 5\n"
            "error: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"
        ),
    ),
    (
        ("gpu_allocation_failure",),
        (
            "terminate called after throwing an instance of 'thrust::system::detail::bad_alloc'\n"
            "  what():  std::bad_alloc: cudaErrorMemoryAllocation: out of memory\n"
            "Aborted (core dumped)"
        ),
    ),
    (
        ("gpu_allocation_failure",),
        (
            "MemoryError: std::bad_alloc: out_of_memory: CUDA error at: /conda/include/rmm/mr/device/cuda_memory_"
            "resource.hpp:70: cudaErrorMemoryAllocation out of memory"
        ),
    ),
    (
        ("gpu_allocation_failure",),
        (
            "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 2,147,483,648 bytes (allocated so far: 2"
            "0,147,483,648 bytes, limit set to: 24,147,483,648 bytes)."
        ),
    ),
    (
        ("host_allocation_failure",),
        (
            "RuntimeError: $ Torch: not enough memory: you tried to allocate 8GB. Buy new RAM! at /pytorch/aten/s"
            "rc/TH/THGeneral.cpp:204"
        ),
    ),
    (
        ("host_allocation_failure",),
        (
            "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 34359738368\n"
            "llama_model_load: error loading model: unable to allocate CPU buffer"
        ),
    ),
    (
        ("host_allocation_failure",),
        (
            'time=2025-01-02T10:00:00.000Z level=INFO source=server.go:100 msg="system memory" total="15.5 GiB" f'
            'ree="1.2 GiB" free_swap="0 B"\n'
            'time=2025-01-02T10:00:00.100Z level=WARN source=server.go:167 msg="model request too large for syste'
            'm" requested="43.1 GiB" available=1288490188 total="15.5 GiB" free="1.2 GiB" swap="0 B"\n'
            '[GIN] 2025/01/02 - 10:00:00 | 500 | 30ms | 127.0.0.1 | POST "/api/generate"'
        ),
    ),
    (
        ("unknown",),
        (
            "2025-05-31 02:32:02,240 WARNING worker.py:1416 -- A worker died or was killed while executing a task"
            " by an unexpected system error. To troubleshoot the problem, check the logs for the dead worker. Ray"
            "Task ID: 0393 Worker ID: 96a2 Node ID: 8e03 Worker IP address: 10.0.2.247 Worker port: 10004 Worker "
            "PID: 261 Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connect"
            "ion error code 2. End of file. There are some potential root causes. (1) The process is killed by SI"
            "GKILL by OOM killer due to high memory usage. (2) ray stop --force is called. (3) The worker is cras"
            "hed unexpectedly due to SIGSEGV or other unexpected errors."
        ),
    ),
    (
        (),
        (
            'User prompt: "My process was Killed with out of memory, exit code 137, what happened?"\n'
            'INFO: 10.0.0.1:1000 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
        ),
    ),
    (
        ("application_exit",),
        (
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
            "============================================================\n"
            "train.py FAILED\n"
            "------------------------------------------------------------\n"
            "Root Cause (first observed failure):\n"
            "[0]:\n"
            "  time      : 2025-01-01_10:00:00\n"
            "  host      : node\n"
            "  rank      : 1 (local_rank: 1)\n"
            "  exitcode  : 1 (pid: 5100)\n"
            "  error_file: <N/A>\n"
            "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
        ),
    ),
    (
        ("unknown",),
        (
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
            "============================================================\n"
            "train.py FAILED\n"
            "Root Cause (first observed failure):\n"
            "[0]:\n"
            "  rank      : 1 (local_rank: 1)\n"
            "  exitcode  : -9 (pid: 5100)\n"
            "  error_file: <N/A>\n"
            "  traceback : Signal 9 (SIGKILL) received by PID 5100"
        ),
    ),
    (
        ("unknown",),
        (
            "(EngineCore_DP0 pid=100) RuntimeError: cancelled\n"
            "(APIServer pid=1) ERROR 01-01 [async_llm.py:480] vllm.v1.engine.exceptions.EngineDeadError: EngineCo"
            "re encountered an issue. See stack trace (above) for the root cause.\n"
            "ERROR 01-01 [multiproc_executor.py:230] Worker proc VllmWorker-1 died unexpectedly, shutting down ex"
            "ecutor."
        ),
    ),
    (
        ("gpu_allocation_failure",),
        (
            "mxnet.base.MXNetError: [10:00:00] src/storage/./pooled_storage_manager.h:161: cudaMalloc retry faile"
            "d: out of memory"
        ),
    ),
    (
        ("host_allocation_failure",),
        (
            "#\n"
            "# There is insufficient memory for the Java Runtime Environment to continue.\n"
            "# Native memory allocation (mmap) failed to map 1073741824 bytes for committing reserved memory.\n"
            "OpenJDK 64-Bit Server VM warning: INFO: os::commit_memory(0x0000000700000000, 1073741824, 0) failed;"
            " error='Not enough space' (errno=12)"
        ),
    ),
    (
        ("host_allocation_failure",),
        ("fatal error: runtime: cannot allocate memory\n\nruntime stack:\nruntime.throw({0x1, 0x2})"),
    ),
    (
        ("application_exit",),
        (
            "[rank1]:[E106 10:00:00.000000000 ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog caught collective opera"
            "tion timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran f"
            "or 600029 milliseconds before timing out.\n"
            "[rank1]:[E106 10:00:00.000000001 ProcessGroupNCCL.cpp:681] [Rank 1] To avoid data inconsistency, we "
            "are taking the entire process down.\n"
            "terminate called after throwing an instance of 'c10::DistBackendError'\n"
            "Aborted (core dumped)"
        ),
    ),
    (
        ("gpu_allocation_failure",),
        (
            "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please t"
            "ry lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine."
        ),
    ),
    (
        ("gpu_allocation_failure",),
        (
            "llama_model_load: error loading model: unable to allocate CUDA0 buffer\n"
            "llama_model_load_from_file_impl: failed to load model"
        ),
    ),
    (
        ("shm_exhausted",),
        (
            "boost::interprocess::bad_alloc: No space left on device\n"
            "multiprocessing.shared_memory: OSError: [Errno 28] No space left on device: '/psm_8f1a'"
        ),
    ),
    (
        ("gpu_allocation_failure",),
        (
            "tensorflow.python.framework.errors_impl.InternalError: Failed to create session / CUDA runtime impli"
            "cit initialization on GPU:0 failed. Status: out of memory"
        ),
    ),
    (
        (),
        (
            "INFO: torch.compile took 20 s. To avoid out of memory, lower max_num_seqs.\n"
            "WARNING: gpu_memory_utilization=0.98 may lead to OOM.\n"
            "NOTE: processes over the limit are killed by the kernel (exit code 137)."
        ),
    ),
    (
        ("gpu_allocation_failure",),
        (
            "INFO 01-01 10:00:00 [core.py:58] Initializing a V1 LLM engine\n"
            "ERROR 01-01 10:00:01 [core.py:390] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256"
            ".00 MiB. GPU 0 has a total capacity of 23.64 GiB of which 20.00 MiB is free.\n"
            "ERROR 01-01 10:00:02 [multiproc_executor.py:140] Worker proc VllmWorker-0 died unexpectedly, shuttin"
            "g down executor.\n"
            "CRITICAL 01-01 10:00:02 [core_client.py:269] Got fatal signal from worker processes, shutting down. "
            "See stack trace above for root cause issue.\n"
            "Killed"
        ),
    ),
    (
        ("unknown",),
        (
            "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly "
            "while the future was running or pending."
        ),
    ),
    (
        ("unknown",),
        (
            "joblib.externals.loky.process_executor.TerminatedWorkerError: A worker process managed by the execut"
            "or was unexpectedly terminated. This could be caused by a segmentation fault while calling the funct"
            "ion or by an excessive memory usage causing the Operating System to kill the worker.\n"
            "\n"
            "The exit codes of the workers are {SIGKILL(-9)}"
        ),
    ),
)
