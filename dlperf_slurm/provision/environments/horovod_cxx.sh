#!/bin/bash
# g++ as Horovod 0.28.1 needs it, whose CMake files are older than the frameworks it is built for:
#   CXX_STANDARD  stands in for every -std=: its PyTorch part asks for C++14, PyTorch for C++17
#   CXX_SKIP      a source file that counts as empty
#   CXX_RPATH     where the libraries look for MPI, from where they lie
arguments=()
is_link=1
for argument in "$@"; do
  case $argument in
    -std=*)
      if [ -z "${CXX_STANDARD:-}" ]; then arguments+=("$argument"); fi ;;
    *"${CXX_SKIP:-/no such file}")
      arguments+=(-x c++ /dev/null) ;;
    -c)
      is_link=
      arguments+=("$argument") ;;
    *)
      arguments+=("$argument") ;;
  esac
done
if [ -n "${CXX_STANDARD:-}" ]; then arguments+=("-std=$CXX_STANDARD"); fi
if [ -n "$is_link" ] && [ -n "${CXX_RPATH:-}" ]; then arguments+=("-Wl,-rpath,$CXX_RPATH"); fi
exec g++ "${arguments[@]}"
