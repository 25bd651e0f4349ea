// <metal_type_traits>, on clang's intrinsics. bfloat counts as a floating-point type; double does not exist in Metal and counts as nothing.
// Not all of C++: MLX's headers define is_empty, void_t and make_void in namespace metal themselves.
#pragma once
#pragma clang system_header
#include "types.h"

struct bfloat;

namespace gcm {
template <class...> using void_t = void;
}

namespace metal {
template <class T, T V> struct integral_constant {
  static constexpr T value = V;
  typedef T value_type;
  typedef integral_constant type;
  constexpr operator T() const { return V; }
  constexpr T operator()() const { return V; }
};
template <bool B> using bool_constant = integral_constant<bool, B>;
typedef bool_constant<true> true_type;
typedef bool_constant<false> false_type;

template <bool B, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { typedef T type; };
template <bool B, class T = void> using enable_if_t = typename enable_if<B, T>::type;

template <bool B, class T, class F> struct conditional { typedef T type; };
template <class T, class F> struct conditional<false, T, F> { typedef F type; };
template <bool B, class T, class F> using conditional_t = typename conditional<B, T, F>::type;

template <class T> T&& declval();

#define GCM_TRANSFORM(name, ...) \
  template <class T> struct name { typedef __VA_ARGS__ type; }; \
  template <class T> using name##_t = __VA_ARGS__;
GCM_TRANSFORM(remove_cv, __remove_cv(T))
GCM_TRANSFORM(remove_addrspace, T)
GCM_TRANSFORM(remove_const, __remove_const(T))
GCM_TRANSFORM(remove_volatile, __remove_volatile(T))
GCM_TRANSFORM(remove_reference, __remove_reference_t(T))
GCM_TRANSFORM(remove_pointer, __remove_pointer(T))
GCM_TRANSFORM(remove_extent, __remove_extent(T))
GCM_TRANSFORM(remove_all_extents, __remove_all_extents(T))
GCM_TRANSFORM(add_pointer, __add_pointer(T))
GCM_TRANSFORM(add_lvalue_reference, __add_lvalue_reference(T))
GCM_TRANSFORM(add_rvalue_reference, __add_rvalue_reference(T))
GCM_TRANSFORM(add_const, const T)
GCM_TRANSFORM(add_cv, const volatile T)
GCM_TRANSFORM(decay, __decay(T))
GCM_TRANSFORM(make_signed, __make_signed(T))
GCM_TRANSFORM(make_unsigned, __make_unsigned(T))
GCM_TRANSFORM(underlying_type, __underlying_type(T))
#undef GCM_TRANSFORM
template <class T> using remove_cvref_t = __remove_cv(__remove_reference_t(T));

#define GCM_TRAIT(name, ...) \
  template <class T> inline constexpr bool name##_v = __VA_ARGS__; \
  template <class T> struct name : bool_constant<__VA_ARGS__> {};
GCM_TRAIT(is_void, __is_void(T))
GCM_TRAIT(is_integral, __is_integral(T))
GCM_TRAIT(is_floating_point, __is_same(__remove_cv(T), float) || __is_same(__remove_cv(T), half) || __is_same(__remove_cv(T), bfloat))
GCM_TRAIT(is_arithmetic, is_integral_v<T> || is_floating_point_v<T>)
GCM_TRAIT(is_signed, is_floating_point_v<T> || (__is_integral(T) && __is_signed(T)))
GCM_TRAIT(is_unsigned, __is_integral(T) && __is_unsigned(T))
GCM_TRAIT(is_pointer, __is_pointer(T))
GCM_TRAIT(is_reference, __is_reference(T))
GCM_TRAIT(is_lvalue_reference, __is_lvalue_reference(T))
GCM_TRAIT(is_rvalue_reference, __is_rvalue_reference(T))
GCM_TRAIT(is_array, __is_array(T))
GCM_TRAIT(is_const, __is_const(T))
GCM_TRAIT(is_volatile, __is_volatile(T))
GCM_TRAIT(is_enum, __is_enum(T))
GCM_TRAIT(is_union, __is_union(T))
GCM_TRAIT(is_class, __is_class(T) && !__is_same(__remove_cv(T), bfloat))
GCM_TRAIT(is_function, __is_function(T))
GCM_TRAIT(is_scalar, is_arithmetic_v<T> || __is_enum(T) || __is_pointer(T))
GCM_TRAIT(is_trivially_copyable, __is_trivially_copyable(T))
GCM_TRAIT(is_standard_layout, __is_standard_layout(T))
#undef GCM_TRAIT
#define GCM_TRAIT2(name) \
  template <class A, class B> inline constexpr bool name##_v = __##name(A, B); \
  template <class A, class B> struct name : bool_constant<__##name(A, B)> {};
GCM_TRAIT2(is_same)
GCM_TRAIT2(is_convertible)
GCM_TRAIT2(is_base_of)
GCM_TRAIT2(is_assignable)
#undef GCM_TRAIT2
template <class T, class... A> inline constexpr bool is_constructible_v = __is_constructible(T, A...);
template <class T, class... A> struct is_constructible : bool_constant<__is_constructible(T, A...)> {};

template <class... B> struct conjunction : bool_constant<(B::value && ...)> {};
template <class... B> struct disjunction : bool_constant<(B::value || ...)> {};
template <class B> struct negation : bool_constant<!B::value> {};
// Apple's internals, which MLX's atomic.h names.
template <class... B> using _conjunction = conjunction<B...>;
template <class... B> using _disjunction = disjunction<B...>;
template <class... B> inline constexpr bool conjunction_v = (B::value && ...);
template <class... B> inline constexpr bool disjunction_v = (B::value || ...);
template <class B> inline constexpr bool negation_v = !B::value;

template <class T, class... R> struct common_type;
template <class T> struct common_type<T> { typedef T type; };
template <class A, class B> struct common_type<A, B> { typedef __decay(decltype(true ? declval<A>() : declval<B>())) type; };
template <class A, class B, class... R> struct common_type<A, B, R...> : common_type<typename common_type<A, B>::type, R...> {};
template <class... T> using common_type_t = typename common_type<T...>::type;

template <class T, T... I> struct integer_sequence { static constexpr size_t size() { return sizeof...(I); } };
template <size_t... I> using index_sequence = integer_sequence<size_t, I...>;
template <size_t N> using make_index_sequence = __make_integer_seq<integer_sequence, size_t, N>;

template <class T> constexpr T&& forward(__remove_reference_t(T)& v) { return static_cast<T&&>(v); }
template <class T> constexpr __remove_reference_t(T)&& move(T&& v) { return static_cast<__remove_reference_t(T)&&>(v); }
} // namespace metal
