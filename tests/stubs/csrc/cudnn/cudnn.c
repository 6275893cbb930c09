/* Stand-in for libcudnn: its version and nothing else. Convolutions work with torch.backends.cudnn.enabled = False. */
__attribute__((visibility("default"))) unsigned long cudnnGetVersion(void) { return 92400; }
