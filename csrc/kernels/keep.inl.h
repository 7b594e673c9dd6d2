// A value that is used more than once: compilers would read it from memory again for every use.
template <class V>
static inline void keep_in_register(V& value) {
#if defined(__x86_64__)
    asm("" : "+v"(value));
#elif defined(__aarch64__)
    asm("" : "+w"(value));
#else
    (void)value;
#endif
}
