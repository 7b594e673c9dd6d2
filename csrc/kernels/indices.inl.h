// A pack of the integers 0 ... N - 1 (std::index_sequence without its header: nothing shared may enter ISA-flagged code).

template <int... I>
struct Indices {};
template <int N, int... I>
struct MakeIndices : MakeIndices<N - 1, N - 1, I...> {};
template <int... I>
struct MakeIndices<0, I...> {
    using type = Indices<I...>;
};
