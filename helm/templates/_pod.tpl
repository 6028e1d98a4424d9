{{/* The pod's template, the same for a Deployment and a StatefulSet. */}}
{{- define "tableside.pod" -}}
metadata:
  {{- $annotations := deepCopy .Values.podAnnotations }}
  {{- if .Values.restartOnConfigChange }}
  {{- $_ := set $annotations "checksum/config" (include "tableside.configuration" . | sha256sum) }}
  {{- end }}
  {{- with $annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  labels:
    {{- include "tableside.podLabels" . | nindent 4 }}
spec:
  serviceAccountName: {{ include "tableside.serviceAccountName" . }}
  automountServiceAccountToken: {{ .Values.serviceAccount.automountToken }}
  # The configuration may refer to environment variables, so Kubernetes adds none for the namespace's Services.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "tableside.gracePeriod" . }}
  securityContext:
    {{- toYaml .Values.podSecurityContext | nindent 4 }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if not .Values.persistence.enabled }}
  {{- with .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- range . }}
    {{- $selector := dict "matchLabels" (include "tableside.selector" $ | fromYaml) }}
    - {{- merge (deepCopy .) (dict "labelSelector" $selector "matchLabelKeys" (list "pod-template-hash")) | toYaml | nindent 6 }}
    {{- end }}
  {{- end }}
  {{- end }}
  {{- with .Values.initContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: tableside
      {{- include "tableside.container" . | nindent 6 }}
    {{- with .Values.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "tableside.volumes" . | nindent 4 }}
{{- end }}

{{- define "tableside.container" -}}
image: {{ include "tableside.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args:
  {{- include "tableside.arguments" . | nindent 2 }}
{{- if or .Values.secrets.env .Values.extraEnv }}
env:
  {{- range $name, $from := .Values.secrets.env }}
  - name: {{ $name }}
    valueFrom:
      secretKeyRef:
        name: {{ $from.secretName }}
        key: {{ $from.key | quote }}
  {{- end }}
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- with .Values.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  - name: http
    containerPort: {{ .Values.ports.http }}
    protocol: TCP
  - name: probes
    containerPort: {{ .Values.ports.probes }}
    protocol: TCP
{{- /* Startup and liveness use /livez instead of /readyz: an unreachable store must not restart the pod. */}}
startupProbe:
  httpGet: {path: /livez, port: probes}
  {{- toYaml .Values.probes.startup | nindent 2 }}
readinessProbe:
  httpGet: {path: /readyz, port: probes}
  {{- toYaml .Values.probes.readiness | nindent 2 }}
livenessProbe:
  httpGet: {path: /livez, port: probes}
  {{- toYaml .Values.probes.liveness | nindent 2 }}
{{- if .Values.preStopSleepSeconds }}
lifecycle:
  preStop:
    sleep:
      seconds: {{ .Values.preStopSleepSeconds }}
{{- end }}
{{- with .Values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
volumeMounts:
  {{- include "tableside.mounts" . | nindent 2 }}
{{- end }}

{{- define "tableside.arguments" -}}
- serve
- --config=/etc/tableside/config.yaml
- {{ printf "--host=%s" .Values.host | quote }}
- {{ printf "--port=%d" (int .Values.ports.http) | quote }}
- {{ printf "--probes-port=%d" (int .Values.ports.probes) | quote }}
- {{ printf "--workers=%d" (int .Values.workers) | quote }}
{{- if .Values.insecure }}
- --insecure
{{- end }}
{{- if .Values.tls.enabled }}
- {{ printf "--ssl-certfile=/etc/tableside-tls/%s" .Values.tls.certKey | quote }}
- {{ printf "--ssl-keyfile=/etc/tableside-tls/%s" .Values.tls.keyKey | quote }}
{{- if .Values.tls.clientCa.secretName }}
- {{ printf "--ssl-ca-certs=/etc/tableside-client-ca/%s" .Values.tls.clientCa.key | quote }}
{{- end }}
{{- end }}
{{- with .Values.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end }}
