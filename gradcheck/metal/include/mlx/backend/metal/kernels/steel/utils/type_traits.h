// In place of MLX's header of this name, which has pointer_element once per address space.
#pragma once
#include <metal_stdlib>

namespace metal {
template <typename T> inline constexpr bool is_empty_v = __is_empty(T);
template <typename T> struct is_empty : bool_constant<__is_empty(T)> {};

template <typename... Ts> struct make_void { typedef void type; };
template <typename... Ts> using void_t = typename make_void<Ts...>::type;

// A type whose value the type itself says, as mlx::steel::integral_constant.
template <typename T> struct is_static : bool_constant<__is_empty(__remove_cv(T))> {};

template <typename T> struct pointer_element {};
template <typename T> struct pointer_element<T*> { using type = __remove_cv(T); };
template <typename T> using pointer_element_t = typename pointer_element<__remove_cv(T)>::type;
} // namespace metal
