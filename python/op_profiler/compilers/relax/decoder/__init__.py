"""Steps of decoders: language models with a paged KV cache, whose attention is a builtin of TVM's virtual machine."""
