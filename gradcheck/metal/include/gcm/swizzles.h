// The swizzles of vectors as properties of the class: v.zx reads as metal::vec<T, 2>(v.z, v.x); where no letter repeats it can be written too.
// A property has no storage and reads as the vector itself, so templates deduce from it as they do from any other vector.
#pragma once

// Each takes the letters, in the order read; the _W ones can be written.
#define GCM_SWIZZLE2(a, b) \
  GCM_FUNC vec<T, 2> get_##a##b() const { return vec<T, 2>::of(a, b); } \
  __declspec(property(get = get_##a##b)) vec<T, 2> a##b;
#define GCM_SWIZZLE2_W(a, b) \
  GCM_FUNC vec<T, 2> get_##a##b() const { return vec<T, 2>::of(a, b); } \
  GCM_FUNC void put_##a##b(vec<T, 2> v) { a = v.x, b = v.y; } \
  __declspec(property(get = get_##a##b, put = put_##a##b)) vec<T, 2> a##b;
#define GCM_SWIZZLE3(a, b, c) \
  GCM_FUNC vec<T, 3> get_##a##b##c() const { return vec<T, 3>::of(a, b, c); } \
  __declspec(property(get = get_##a##b##c)) vec<T, 3> a##b##c;
#define GCM_SWIZZLE3_W(a, b, c) \
  GCM_FUNC vec<T, 3> get_##a##b##c() const { return vec<T, 3>::of(a, b, c); } \
  GCM_FUNC void put_##a##b##c(vec<T, 3> v) { a = v.x, b = v.y, c = v.z; } \
  __declspec(property(get = get_##a##b##c, put = put_##a##b##c)) vec<T, 3> a##b##c;
#define GCM_SWIZZLE4(a, b, c, d) \
  GCM_FUNC vec<T, 4> get_##a##b##c##d() const { return vec<T, 4>::of(a, b, c, d); } \
  __declspec(property(get = get_##a##b##c##d)) vec<T, 4> a##b##c##d;
#define GCM_SWIZZLE4_W(a, b, c, d) \
  GCM_FUNC vec<T, 4> get_##a##b##c##d() const { return vec<T, 4>::of(a, b, c, d); } \
  GCM_FUNC void put_##a##b##c##d(vec<T, 4> v) { a = v.x, b = v.y, c = v.z, d = v.w; } \
  __declspec(property(get = get_##a##b##c##d, put = put_##a##b##c##d)) vec<T, 4> a##b##c##d;

// Two letters of x y, in any order and number; then what z adds, then what w adds.
#define GCM_PAIR(a, b) GCM_SWIZZLE2(a, a) GCM_SWIZZLE2(b, b) GCM_SWIZZLE2_W(a, b) GCM_SWIZZLE2_W(b, a)
#define GCM_WITH2(a, b) GCM_SWIZZLE2_W(a, b) GCM_SWIZZLE2_W(b, a)

#define GCM_PERMUTED3(a, b, c) \
  GCM_SWIZZLE3_W(a, b, c) GCM_SWIZZLE3_W(a, c, b) GCM_SWIZZLE3_W(b, a, c) GCM_SWIZZLE3_W(b, c, a) GCM_SWIZZLE3_W(c, a, b) GCM_SWIZZLE3_W(c, b, a)

#define GCM_FROM4(a, b, c, d) \
  GCM_SWIZZLE4_W(a, b, c, d) GCM_SWIZZLE4_W(a, b, d, c) GCM_SWIZZLE4_W(a, c, b, d) GCM_SWIZZLE4_W(a, c, d, b) GCM_SWIZZLE4_W(a, d, b, c) GCM_SWIZZLE4_W(a, d, c, b)
#define GCM_PERMUTED4(a, b, c, d) GCM_FROM4(a, b, c, d) GCM_FROM4(b, a, c, d) GCM_FROM4(c, a, b, d) GCM_FROM4(d, a, b, c)

// Three and four letters with repeats. They are most of the parse time of all swizzles and kernels hardly use them, so they are there only
// for a text that does, by -DGCM_ALL_SWIZZLES. Components have no names r, g, b, a.
#ifdef GCM_ALL_SWIZZLES
#define GCM_TWICE3(a, b) GCM_SWIZZLE3(a, a, b) GCM_SWIZZLE3(a, b, a) GCM_SWIZZLE3(b, a, a) GCM_SWIZZLE3(b, b, a) GCM_SWIZZLE3(b, a, b) GCM_SWIZZLE3(a, b, b)
#define GCM_THRICE4(a, b) GCM_SWIZZLE4(a, a, a, b) GCM_SWIZZLE4(a, a, b, a) GCM_SWIZZLE4(a, b, a, a) GCM_SWIZZLE4(b, a, a, a)
#define GCM_TWICE4(a, b) \
  GCM_SWIZZLE4(a, a, b, b) GCM_SWIZZLE4(a, b, a, b) GCM_SWIZZLE4(a, b, b, a) GCM_SWIZZLE4(b, b, a, a) GCM_SWIZZLE4(b, a, b, a) GCM_SWIZZLE4(b, a, a, b) \
  GCM_THRICE4(a, b) GCM_THRICE4(b, a)
#define GCM_BESIDE4(a, b, c) \
  GCM_SWIZZLE4(a, a, b, c) GCM_SWIZZLE4(a, a, c, b) GCM_SWIZZLE4(a, b, a, c) GCM_SWIZZLE4(a, c, a, b) GCM_SWIZZLE4(a, b, c, a) GCM_SWIZZLE4(a, c, b, a) \
  GCM_SWIZZLE4(b, a, a, c) GCM_SWIZZLE4(c, a, a, b) GCM_SWIZZLE4(b, a, c, a) GCM_SWIZZLE4(c, a, b, a) GCM_SWIZZLE4(b, c, a, a) GCM_SWIZZLE4(c, b, a, a)
#define GCM_MIXED4(a, b, c) GCM_BESIDE4(a, b, c) GCM_BESIDE4(b, a, c) GCM_BESIDE4(c, a, b)
#define GCM_SAME(a) GCM_SWIZZLE3(a, a, a) GCM_SWIZZLE4(a, a, a, a)
#else
#define GCM_TWICE3(a, b)
#define GCM_TWICE4(a, b)
#define GCM_MIXED4(a, b, c)
#define GCM_SAME(a)
#endif

#define GCM_SWIZZLES_XY \
  GCM_PAIR(x, y) GCM_TWICE3(x, y) GCM_SAME(x) GCM_SAME(y) GCM_TWICE4(x, y)
#define GCM_SWIZZLES_Z \
  GCM_SWIZZLE2(z, z) GCM_WITH2(x, z) GCM_WITH2(y, z) \
  GCM_TWICE3(x, z) GCM_TWICE3(y, z) GCM_PERMUTED3(x, y, z) \
  GCM_SAME(z) GCM_TWICE4(x, z) GCM_TWICE4(y, z) GCM_MIXED4(x, y, z)
#define GCM_SWIZZLES_W \
  GCM_SWIZZLE2(w, w) GCM_WITH2(x, w) GCM_WITH2(y, w) GCM_WITH2(z, w) \
  GCM_TWICE3(x, w) GCM_TWICE3(y, w) GCM_TWICE3(z, w) GCM_PERMUTED3(x, y, w) GCM_PERMUTED3(x, z, w) GCM_PERMUTED3(y, z, w) \
  GCM_SAME(w) GCM_TWICE4(x, w) GCM_TWICE4(y, w) GCM_TWICE4(z, w) GCM_MIXED4(x, y, w) GCM_MIXED4(x, z, w) GCM_MIXED4(y, z, w) \
  GCM_PERMUTED4(x, y, z, w)
