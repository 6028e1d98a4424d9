{{/*
Mounts and volumes. Each mount is a whole folder: Kubernetes never updates a single mounted file (subPath), and the
service reloads its configuration, tokens and certificates when they change.
*/}}
{{- define "tableside.mounts" -}}
{{ include "tableside.ownMounts" . }}
{{- if .Values.persistence.enabled }}
- name: data
  mountPath: {{ .Values.persistence.mountPath | quote }}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The mounts at paths that the chart chooses. */}}
{{- define "tableside.ownMounts" -}}
- name: config
  mountPath: /etc/tableside
  readOnly: true
- name: tmp
  mountPath: /tmp
{{- range $name, $_ := .Values.secrets.files }}
- name: secret-{{ $name }}
  mountPath: /etc/tableside-secrets/{{ $name }}
  readOnly: true
{{- end }}
{{- if .Values.tls.enabled }}
- name: tls
  mountPath: /etc/tableside-tls
  readOnly: true
{{- if .Values.tls.clientCa.secretName }}
- name: client-ca
  mountPath: /etc/tableside-client-ca
  readOnly: true
{{- end }}
{{- end }}
{{- if .Values.kubernetesIssuer.enabled }}
- name: kubernetes-issuer
  mountPath: /var/run/secrets/tableside/kubernetes
  readOnly: true
{{- end }}
{{- end }}

{{/* Only the pod's group can read the Secrets: 288 is 0440. */}}
{{- define "tableside.volumes" -}}
- name: config
  configMap:
    name: {{ include "tableside.fullname" . }}
- name: tmp
  emptyDir:
    sizeLimit: {{ .Values.tmpSizeLimit }}
{{- range $name, $from := .Values.secrets.files }}
- name: secret-{{ $name }}
  secret:
    secretName: {{ $from.secretName }}
    defaultMode: 288
    {{- with $from.items }}
    items:
      {{- toYaml . | nindent 6 }}
    {{- end }}
{{- end }}
{{- if .Values.tls.enabled }}
- name: tls
  secret:
    secretName: {{ .Values.tls.secretName }}
    defaultMode: 288
{{- if .Values.tls.clientCa.secretName }}
- name: client-ca
  secret:
    secretName: {{ .Values.tls.clientCa.secretName }}
    defaultMode: 288
    items:
      - key: {{ .Values.tls.clientCa.key | quote }}
        path: {{ .Values.tls.clientCa.key | quote }}
{{- end }}
{{- end }}
{{- if .Values.kubernetesIssuer.enabled }}
- name: kubernetes-issuer
  projected:
    defaultMode: 288
    sources:
      - serviceAccountToken:
          path: token
          expirationSeconds: {{ .Values.kubernetesIssuer.expirationSeconds }}
          {{- with .Values.kubernetesIssuer.audience }}
          audience: {{ . | quote }}
          {{- end }}
      - configMap:
          name: kube-root-ca.crt
          items:
            - {key: ca.crt, path: ca.crt}
{{- end }}
{{- with .Values.persistence.existingClaim }}
{{- if $.Values.persistence.enabled }}
- name: data
  persistentVolumeClaim:
    claimName: {{ . }}
{{- end }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
