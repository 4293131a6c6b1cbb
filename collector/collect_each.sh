# Sourced by plans: `collect SOURCE NAME ...` measures each network into a file of its own below $folder, with $options,
# and `report` ends with exit code 1 if one was not, or not wholly measured. What a file holds is not measured again.
set -euo pipefail
failed=()
collect() { # SOURCE NAME ...
  local source=$1 name
  shift
  for name in "$@"; do
    echo "op-profiler collect --modelsource $source --modelname $name" >&2
    op-profiler collect --modelsource "$source" --modelname "$name" --schedules none "${options[@]}" \
      --db "$folder/$source-${name//:/-}.db" || failed+=("$name")
  done
}
report() {
  [ ${#failed[@]} -eq 0 ] || { echo "not, or not wholly measured: ${failed[*]}" >&2; exit 1; }
}
