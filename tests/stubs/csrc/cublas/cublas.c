/* Stand-in for libcublas: handles can be made, everything else answers success and computes nothing. */
#include "../card/card.h"

__attribute__((visibility("default"))) int cublasCreate_v2(void **handle) {
    static int made;
    cards state;
    *handle = &made;
    return cards_read(&state) ? 1 : scripted_failure(&state, __func__); /* 3 is CUBLAS_STATUS_ALLOC_FAILED */
}
