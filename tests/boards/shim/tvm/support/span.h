// Stands in for tvm/support/span.h, which the wheel of TVM leaves out: a view over a C array.
#pragma once
#include <cstddef>
#include <vector>
namespace tvm {
namespace support {
template <class T, class W>
class Span {
 public:
  Span(T* begin, T* end) : begin_(begin), end_(end) {}
  Span(T* begin, int size) : begin_(begin), end_(begin + size) {}
  T* begin() const { return begin_; }
  T* end() const { return end_; }
  std::size_t size() const { return static_cast<std::size_t>(end_ - begin_); }
  W operator[](int i) const { return W(begin_[i]); }
  operator std::vector<W>() const { return std::vector<W>(begin_, end_); }

 private:
  T* begin_;
  T* end_;
};
}  // namespace support
}  // namespace tvm
