{{/*
Names and labels. A name has at most 52 characters, so that it fits into 63 with the suffixes that the chart and the
revisions of a StatefulSet add.
*/}}
{{- define "tableside.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "tableside.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name }}
{{- $whole := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) }}
{{- .Values.fullnameOverride | default $whole | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "tableside.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "tableside.fullname" .) "default") }}
{{- end }}

{{/* The selector of the pods. It is immutable in Kubernetes, so it contains only constant labels. */}}
{{- define "tableside.selector" -}}
app.kubernetes.io/name: {{ include "tableside.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* All labels: the chart's, then those in `more` and commonLabels. The chart's take precedence. */}}
{{- define "tableside.labels" -}}
{{- $root := .root }}
{{- $ours := include "tableside.selector" $root | fromYaml }}
{{- $_ := set $ours "app.kubernetes.io/version" (include "tableside.labelText" ($root.Values.image.tag | default $root.Chart.AppVersion)) }}
{{- $_ := set $ours "app.kubernetes.io/managed-by" $root.Release.Service }}
{{- $_ := set $ours "app.kubernetes.io/part-of" "tableside" }}
{{- $_ := set $ours "helm.sh/chart" (include "tableside.labelText" (printf "%s-%s" $root.Chart.Name $root.Chart.Version)) }}
{{- merge $ours (.more | default dict) $root.Values.commonLabels | toYaml }}
{{- end }}

{{/* The labels of pods, without the chart's version: a new version alone must not restart them. */}}
{{- define "tableside.podLabels" -}}
{{- merge (include "tableside.selector" . | fromYaml) .Values.podLabels .Values.commonLabels | toYaml }}
{{- end }}

{{- define "tableside.labelText" -}}
{{- regexReplaceAll "[^A-Za-z0-9]+$" (. | toString | replace "+" "_" | trunc 63) "" }}
{{- end }}

{{- define "tableside.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default (.Chart.AppVersion | replace "+" "_") }}
{{- end }}
{{- end }}

{{- define "tableside.replicas" -}}
{{- if kindIs "invalid" .Values.replicas }}
{{- .Values.persistence.enabled | ternary 1 2 }}
{{- else }}
{{- .Values.replicas | int }}
{{- end }}
{{- end }}
