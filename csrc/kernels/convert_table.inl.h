// What each build of the converting copies offers (kernels/convert.h), included in its namespace after convert.inl.h.

template <class T>
WidenKernel<T> widen_to(Dtype dtype, Part part) {
    return select_widen<T>(dtype, part);
}
template <class T>
NarrowKernel<T> narrow_from(Dtype dtype) {
    return select_narrow<T>(dtype);
}
template <class T>
JoinKernel<T> join_from(Dtype dtype) {
    return select_join<T>(dtype);
}

template WidenKernel<float> widen_to<float>(Dtype, Part);
template WidenKernel<double> widen_to<double>(Dtype, Part);
template NarrowKernel<float> narrow_from<float>(Dtype);
template NarrowKernel<double> narrow_from<double>(Dtype);
template JoinKernel<float> join_from<float>(Dtype);
template JoinKernel<double> join_from<double>(Dtype);
