{{/* Checks of addresses, mount paths and passwords, like the checks in _refusals.tpl. */}}

{{- define "tableside.refuseAddress" -}}
{{- if regexMatch "(?i)^(localhost|127[.].*|[0:]*:0*1|[0:]*:ffff:127[.].*)$" .Values.host }}
{{- fail (printf "host %s is a loopback address, which probes and Services cannot reach: use 0.0.0.0 or ::" .Values.host) }}
{{- end }}
{{- if eq (int .Values.ports.http) (int .Values.ports.probes) }}
{{- fail "ports.http and ports.probes are equal: the service needs two ports" }}
{{- end }}
{{- end }}

{{- define "tableside.refuseMounts" -}}
{{- $ours := list }}
{{- range (include "tableside.ownMounts" . | fromYamlArray) }}
{{- $ours = append $ours .mountPath }}
{{- end }}
{{- if .Values.persistence.enabled }}
{{- $path := .Values.persistence.mountPath }}
{{- if regexMatch "(^|/)[.][.]?(/|$)" $path }}
{{- fail "persistence.mountPath contains . or ..: use a path without it" }}
{{- end }}
{{- $system := list "/backups" "/bin" "/dev" "/etc" "/lib" "/lib64" "/opt/tableside" "/proc" "/run" "/sbin" "/sys" "/tmp" "/usr" "/var/run" }}
{{- range concat $ours $system }}
{{- $here := printf "%s/" (regexReplaceAll "/+" $path "/" | trimSuffix "/") }}
{{- $there := printf "%s/" . }}
{{- if or (hasPrefix $there $here) (hasPrefix $here $there) }}
{{- fail (printf "persistence.mountPath %s conflicts with %s: choose another path, such as /data" $path .) }}
{{- end }}
{{- end }}
{{- $ours = append $ours (trimSuffix "/" $path) }}
{{- end }}
{{- range .Values.extraVolumeMounts }}
{{- if has (.mountPath | default "" | trimSuffix "/") $ours }}
{{- fail (printf "extraVolumeMounts contains %s, which the chart uses for another volume" .mountPath) }}
{{- end }}
{{- end }}
{{- end }}

{{/* More people can usually read ConfigMaps than Secrets, so the configuration must not contain passwords. */}}
{{- define "tableside.refusePasswords" -}}
{{- range $store, $options := .Values.config.stores }}
{{- range $name, $value := $options }}
{{- $text := regexReplaceAll "[$][{][A-Za-z_][A-Za-z0-9_]*[}]" ($value | toString) "" }}
{{- $secret := and (regexMatch "(?i)(password|secret|token|access_?key|credential)" $name) (not (regexMatch "(?i)(file|path)$" $name)) }}
{{- $named := and $secret (kindIs "string" $value) (ne $text "") }}
{{- if or $named (regexMatch "://[^:@/?#]*:[^@/?#]+@|[?&](ssl)?password=[^&]" $text) }}
{{- fail (printf "config.stores.%s.%s contains a password or key, which a ConfigMap would expose: store it in a Secret, name the Secret in secrets.env, and write ${NAME} here" $store $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
