"""Texts that stand for a failed allocation on a GPU."""

from __future__ import annotations

from typing import Final

GPU_TEXTS: Final[tuple[str, ...]] = (
    "E0203 04:05:06 1 model_lifecycle.cc:642] failed to load 'llm' version 1: unable to create stream: out of memory",
    (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has 1.10 GiB free.\n"
        "[2025-02-03 04:05:06] Received sigquit from a child process. It usually means the child failed.\n"
        "Killed"
    ),
    (
        "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 15.78 GiB total "
        "capacity; 14.20 GiB already allocated; 11.75 MiB free; 14.60 GiB reserved in total by "
        "PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to "
        "avoid fragmentation."
    ),
    (
        "RuntimeError: CUDA out of memory. Tried to allocate 978.00 MiB (GPU 0; 15.90 GiB total "
        "capacity; 14.22 GiB already allocated; 167.88 MiB free; 14.99 GiB reserved in total by "
        "PyTorch)"
    ),
    (
        "RuntimeError: CUDA error: out of memory\n"
        "CUDA kernel errors might be asynchronously reported at some other API call, so the "
        "stacktrace below might be incorrect."
    ),
    "torch.AcceleratorError: CUDA error: out of memory",
    (
        "RuntimeError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] "
        "via c10d key-value store by key '0', but store->get('0') got error\n"
        "RuntimeError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1269, "
        "unhandled cuda error, NCCL version 2.14.3\n"
        "ncclUnhandledCudaError: Call to CUDA function failed.\n"
        "Last error:\n"
        "Cuda failure 'out of memory'"
    ),
    (
        "[rank3]: torch.distributed.DistBackendError: NCCL error in: ... Last error:\n"
        "[rank3]: Failed to CUDA calloc async 6079 bytes"
    ),
    ("CUDA error 2 at /src/ggml-cuda.cu:7233: out of memory\ncurrent device: 0"),
    (
        "CUDA error: out of memory\n"
        "  current device: 0, in function alloc at ggml-cuda.cu:323\n"
        "  cuMemCreate(&handle, reserve_size, &prop, 0)\n"
        'GGML_ASSERT: ggml-cuda.cu:100: !"CUDA error"\n'
        "Aborted (core dumped)"
    ),
    (
        "ggml_vulkan: Device memory allocation of size 1073741824 failed.\n"
        "ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory\n"
        "llama_model_load: error loading model: unable to allocate Vulkan0 buffer"
    ),
    (
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating "
        "tensor with shape[32,512,1024] and type float on "
        "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:Mul]"
    ),
    (
        "2020-05-01 01:02:03.000001: I tensorflow/stream_executor/cuda/cuda_driver.cc:763] "
        "failed to allocate 3.80G (4080218880 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out "
        "of memory"
    ),
    (
        "XlaRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory "
        "in memory space hbm. Used 20.23G of 15.48G hbm. Exceeded hbm capacity by 4.75G."
    ),
    ("jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 17179869184 bytes."),
    (
        "ValueError: The model's max seq len (131072) is larger than the maximum number of "
        "tokens that can be stored in KV cache (24560). Try increasing `gpu_memory_utilization` "
        "or decreasing `max_model_len` when initializing the engine."
    ),
    (
        "ValueError: Free memory on device (3.65/23.68 GiB) on startup is less than desired GPU "
        "memory utilization (0.9, 21.31 GiB). Decrease GPU memory utilization or reduce GPU "
        "memory used by other processes."
    ),
    (
        "ValueError: To serve at least one request with the models's max seq len (40960), (5.62 "
        "GiB KV cache is needed, which is larger than the available KV cache memory (2.50 GiB). "
        "Based on the available memory"
    ),
    "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
    (
        "RuntimeError: Not enough memory to handle 4096 prefill tokens. You need to decrease "
        "`--max-batch-prefill-tokens`"
    ),
    (
        "[TensorRT] ERROR: 2: [virtualMemoryBuffer.cpp::resizePhysical::145] Error Code 2: "
        "OutOfMemory (no further information)"
    ),
    ("ERROR: 1: [defaultAllocator.cpp::allocate::20] Error Code 1: Cuda Runtime (out of memory)"),
    (
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 1 has a "
        "total capacity of 23.98 GiB of which 1.50 GiB is free. Of the allocated memory 20 GiB "
        "is allocated by PyTorch, and 1 GiB is reserved by PyTorch but unallocated."
    ),
    (
        "RuntimeError: MPS backend out of memory (MPS allocated: 18.05 GB, other allocations: "
        "384.00 KB, max allowed: 18.13 GB). Tried to allocate 256.00 MB on private pool. Use "
        "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations"
    ),
    (
        "RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 60.97 GiB total "
        "capacity; 56.78 GiB already allocated; 56.78 GiB current active; 1.05 GiB free; 58.12 "
        "GiB reserved in total by PyTorch)"
    ),
    "RuntimeError: SYS_EBUSY: Lack of device memory",
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    (
        "    Last State:     Terminated\n"
        "      Reason:       Error\n"
        "      Exit Code:    1\n"
        "      Message: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    ),
    (
        "2024-01-01T00:00:00.000000Z ERROR text_generation_launcher: Shard 0 crashed\n"
        '{"timestamp":"2024-01-01T00:00:00Z","level":"ERROR","message":"Server error: CUDA out '
        'of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 10 GiB"}'
    ),
    (
        "(EngineCore_0 pid=12) ERROR 01-01 00:00:00 [core.py:700] EngineCore failed to start.\n"
        "(EngineCore_0 pid=12) ERROR 01-01 00:00:00 [core.py:700] Traceback\n"
        "(EngineCore_0 pid=12) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
        "2.00 GiB. GPU 0 has a total capacity of 3.00 GiB\n"
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause "
        "above. Failed core proc(s): {}"
    ),
    (
        "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 "
        "has a total capacity of 3.00 GiB\n"
        "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 "
        "has a total capacity of 3.00 GiB"
    ),
    (
        "E0101 00:00:00.000000 1 model_lifecycle.cc:596] failed to load 'x' version 1: Internal: "
        "onnx runtime error 1: CUDA failure 2: out of memory ; GPU=0 ; hostname=x"
    ),
    (
        'time=2024 level=ERROR source=sched.go:455 msg="error loading llama server" error="llama '
        'runner process has terminated: cudaMalloc failed: out of memory"'
    ),
)
