# shellcheck shell=bash disable=SC2154  # root: the checkout, set by whoever sources this
# Sourced by the scripts beside it: what they need installed, and how they build. stdout stays untouched.

say() { printf 'memcalc: %s\n' "$*" >&2; }

fail() {  # fail STATUS MESSAGE...
  local status=$1
  shift
  say "$@"
  exit "$status"
}

# A package is there if its command or header is, wherever it came from.
has_package() {
  case $1 in
    cmake) command -v cmake ;;
    ninja-build) command -v ninja ;;
    g++) command -v "${CXX:-c++}" ;;
    python3) command -v python3 ;;
    python3-dev) [ -e "$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["include"])')/Python.h" ] ;;
    python3-venv) python3 -c 'import ensurepip, venv' 2>&1 ;;
    pybind11-dev) has_header pybind11/pybind11.h ;;
    emscripten) command -v em++ && command -v em-config ;;
    chromium) command -v chromium ;;
    time) [ -x /usr/bin/time ] ;;
    nlohmann-json3-dev) has_header nlohmann/json.hpp ;;
    libcli11-dev) has_header CLI/CLI.hpp ;;
    libeigen3-dev) has_header eigen3/Eigen/Core ;;
    libfmt-dev) has_header fmt/format.h ;;
    libyaml-cpp-dev) has_header yaml-cpp/yaml.h ;;
    libtomlplusplus-dev) has_header toml++/toml.h ;;
    libgtest-dev) has_header gtest/gtest.h ;;
    libgmock-dev) has_header gmock/gmock.h ;;
    libbenchmark-dev) has_header benchmark/benchmark.h ;;
    zlib1g-dev) has_header zlib.h ;;
    *) fail 2 "scripts/setup.sh does not know how to see whether $1 is there" ;;
  esac >/dev/null
}

has_header() { [ -e "/usr/include/$1" ] || [ -e "/usr/local/include/$1" ]; }

# require_packages NAME...: Debian's (and Ubuntu's) names. Installs what is missing where apt may.
require_packages() {
  local package missing=() prefix=()
  for package in "$@"; do
    has_package "$package" || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0

  command -v apt-get >/dev/null ||
    fail 2 "missing, by Debian's names: ${missing[*]} (no apt-get here: install them as this system does)"
  if [ "$(id -u)" -ne 0 ]; then
    sudo -n true 2>/dev/null || fail 2 "missing: ${missing[*]}; install with: sudo apt-get install ${missing[*]}"
    prefix=(sudo -n)
  fi
  say "installing ${missing[*]}"
  local log install=("${prefix[@]}" env DEBIAN_FRONTEND=noninteractive
    apt-get install --yes --no-install-recommends "${missing[@]}")
  log=$(mktemp)
  if ! "${install[@]}" </dev/null >"$log" 2>&1 &&  # the package lists may be missing or old
    ! { "${prefix[@]}" apt-get update && "${install[@]}"; } </dev/null >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    fail 2 "apt-get could not install: ${missing[*]}"
  fi
  rm -f "$log"
}

# configure DIRECTORY [-DOPTION=VALUE...], build DIRECTORY TARGET [-DOPTION=VALUE...]: chatter only to stderr, all of it on
# failure.
configure() {
  local directory=$1 log=$1/build.log
  shift
  mkdir -p "$directory"
  if ! cmake -S "$root" -B "$directory" -G Ninja "$@" </dev/null >"$log" 2>&1; then
    cat "$log" >&2
    fail 3 "configuring failed; the log is $log"
  fi
}

build() {
  local directory=$1 target=$2 log=$1/build.log
  shift 2
  configure "$directory" "$@"
  if [ -t 2 ]; then  # a person watches: ninja's one line of progress
    cmake --build "$directory" --target "$target" </dev/null >&2 || fail 3 "building failed"
  elif ! cmake --build "$directory" --target "$target" </dev/null >"$log" 2>&1; then
    cat "$log" >&2
    fail 3 "building failed; the log is $log"
  fi
}

# make_python_venv DIRECTORY PACKAGE...: an environment with packages of PyPI; kept as it is where it has them already.
make_python_venv() {
  local directory=$1 log=$1.log wanted
  shift
  wanted="$(python3 --version) $*"
  [ "$(cat "$directory/wanted" 2>/dev/null)" != "$wanted" ] || return 0
  say "installing into $directory: $*"
  rm -rf "$directory"
  mkdir -p "$(dirname "$directory")"
  # Python compiles what is imported; of all that is installed that would take as long as the installation.
  python3 -m venv "$directory" >"$log" 2>&1 &&
    timeout 900 "$directory/bin/pip" install --quiet --disable-pip-version-check --no-compile "$@" </dev/null >>"$log" 2>&1 &&
    printf '%s\n' "$wanted" >"$directory/wanted" || { cat "$log" >&2; return 1; }
}
