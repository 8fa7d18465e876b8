# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

# Completion of the command tenure in bash:  source <(tenure completion bash)

_tenure() {
	local word line i
	local -a words=() list=()
	# The words as the shell sees them, not as readline cuts them at = and :.
	line=${COMP_LINE:0:COMP_POINT}
	read -r -a words <<<"$line"
	[[ $line == *[[:space:]] || ${#words[@]} -eq 1 ]] && words+=("")
	word=${words[-1]}

	# Behind "--" stands a command of its own.
	for ((i = 1; i < ${#words[@]} - 1; i++)); do
		if [[ ${words[i]} == -- ]]; then
			if ((i == ${#words[@]} - 2)); then
				mapfile -t COMPREPLY < <(compgen -c -- "$word")
			else
				mapfile -t COMPREPLY < <(compgen -f -- "$word")
			fi
			return
		fi
	done

	mapfile -t list < <("${words[0]}" __complete "${words[@]:1}" 2>/dev/null)
	# What readline takes for the word begins behind the last = or :.
	local cut=${word%"${word##*[=:]}"}
	[[ $COMP_WORDBREAKS == *[=:]* ]] || cut=
	COMPREPLY=("${list[@]#"$cut"}")
	if ((${#COMPREPLY[@]} == 1)) && [[ ${COMPREPLY[0]} == *[:/] ]]; then
		compopt -o nospace
	fi
	if ((${#COMPREPLY[@]} == 0)); then
		local file=${word#"$cut"}
		file=${file#sqlite:}
		mapfile -t COMPREPLY < <(compgen -f -- "$file")
	fi
}

complete -o filenames -F _tenure tenure
