#compdef tenure
# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

# Completion of the command tenure in zsh:  source <(tenure completion zsh)

_tenure() {
	local -a list
	local split=${words[(i)--]}
	if ((split < CURRENT)); then
		# Behind "--" stands a command of its own.
		shift $split words
		((CURRENT -= split))
		_normal
		return
	fi
	list=("${(@f)$(${words[1]} __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
	list=(${list:#})
	if ((${#list})); then
		compadd -S '' -- ${(M)list:#*[:/]}
		compadd -- ${list:#*[:/]}
	else
		compset -P 'sqlite:'
		_files
	fi
}

if [[ ${funcstack[1]} == _tenure ]]; then
	_tenure "$@"
else
	compdef _tenure tenure
fi
