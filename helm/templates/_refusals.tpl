{{/*
Checks that reject values which cannot work, before Helm installs anything. The service also rejects them, but only at
start. values.schema.json checks each value. These templates check combinations of values.
*/}}
{{- define "tableside.refusals" -}}
{{- include "tableside.refuseConfiguration" . }}
{{- include "tableside.refuseAddress" . }}
{{- include "tableside.refuseMounts" . }}
{{- include "tableside.refusePasswords" . }}
{{- include "tableside.refuseStores" . }}
{{- include "tableside.refusePersistence" . }}
{{- include "tableside.refuseBackup" . }}
{{- include "tableside.refuseDisruptions" . }}
{{- if and .Values.tls.clientCa.secretName (not .Values.tls.enabled) }}
{{- fail "tls.clientCa requires tls.enabled: clients present certificates in TLS connections only" }}
{{- end }}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) }}
{{- fail "autoscaling.minReplicas is above autoscaling.maxReplicas" }}
{{- end }}
{{- end }}

{{- define "tableside.refuseConfiguration" -}}
{{- if not .Values.config.stores }}
{{- fail "config is missing: set the service's configuration, with at least one store in config.stores (docs/configuration.md)" }}
{{- end }}
{{- if not (or (hasKey .Values.config "auth") .Values.insecure) }}
{{- fail "config.auth is missing: every client in the cluster could read and write. Set it (docs/security.md), or set insecure: true" }}
{{- end }}
{{- end }}

{{- define "tableside.refuseStores" -}}
{{- $several := or .Values.autoscaling.enabled (gt (include "tableside.replicas" . | int) 1) }}
{{- range $name, $store := .Values.config.stores }}
{{- if has $store.kind (list "memory" "rocksdb") }}
{{- if $several }}
{{- fail (printf "config.stores.%s is of kind %s, which only one process can open: set replicas: 1, without autoscaling" $name $store.kind) }}
{{- end }}
{{- if gt (int $.Values.workers) 1 }}
{{- fail (printf "config.stores.%s is of kind %s, which only one process can open: set workers: 1" $name $store.kind) }}
{{- end }}
{{- end }}
{{- if and (eq $store.kind "rocksdb") (not $.Values.persistence.enabled) }}
{{- fail (printf "config.stores.%s is of kind rocksdb, which needs a volume: set persistence.enabled" $name) }}
{{- end }}
{{- if eq $store.kind "rocksdb" }}
{{- include "tableside.refusePath" (dict "root" $ "name" $name "path" ($store.path | default "")) }}
{{- end }}
{{- end }}
{{- range $name, $table := .Values.config.tables }}
{{- if and (gt (int $.Values.workers) 1) $table.cache }}
{{- fail (printf "config.tables.%s has a cache: set workers: 1, so that a worker sees the writes of the others" $name) }}
{{- end }}
{{- end }}
{{- end }}

{{/* The root file system is read-only. A path outside a volume would fail at start, or lose its records with the pod. */}}
{{- define "tableside.refusePath" -}}
{{- $mounts := list .root.Values.persistence.mountPath }}
{{- range .root.Values.extraVolumeMounts }}
{{- $mounts = append $mounts .mountPath }}
{{- end }}
{{- if regexMatch "(^|/)[.][.](/|$)" .path }}
{{- fail (printf "config.stores.%s.path contains ..: use a path without it" .name) }}
{{- end }}
{{- $below := contains "${" .path }}
{{- range $mounts }}
{{- if or (eq $.path .) (hasPrefix (printf "%s/" (trimSuffix "/" .)) $.path) }}
{{- $below = true }}
{{- end }}
{{- end }}
{{- if not $below }}
{{- fail (printf "config.stores.%s.path is not on a volume: use a path below persistence.mountPath, %s" .name .root.Values.persistence.mountPath) }}
{{- end }}
{{- end }}

{{- define "tableside.refusePersistence" -}}
{{- if .Values.persistence.enabled }}
{{- if gt (include "tableside.replicas" . | int) 1 }}
{{- fail "persistence.enabled requires one replica: only one process can open a RocksDB database" }}
{{- end }}
{{- if .Values.autoscaling.enabled }}
{{- fail "persistence.enabled excludes autoscaling: only one process can open a RocksDB database" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "tableside.refuseBackup" -}}
{{- if .Values.backup.enabled }}
{{- if ne (dig .Values.backup.store "kind" "" .Values.config.stores) "rocksdb" }}
{{- fail "backup.store is not a store of kind rocksdb: only RocksDB needs this backup" }}
{{- end }}
{{- if not .Values.backup.existingClaim }}
{{- fail "backup.existingClaim is missing: name the claim of a volume for the backups" }}
{{- end }}
{{- if has "ReadWriteOncePod" .Values.persistence.accessModes }}
{{- fail "backup.enabled excludes the access mode ReadWriteOncePod: the pods of the service and of the backup mount one volume" }}
{{- end }}
{{- end }}
{{- end }}

{{/* A budget must allow evicting a pod, and a rollout replacing one. Percentages are rounded up, as Kubernetes does. */}}
{{- define "tableside.refuseDisruptions" -}}
{{- $none := list "0" "0%" }}
{{- with .Values.podDisruptionBudget.enabled | ternary .Values.podDisruptionBudget nil }}
{{- if eq (kindIs "invalid" .minAvailable) (kindIs "invalid" .maxUnavailable) }}
{{- fail "podDisruptionBudget needs either minAvailable or maxUnavailable: set the other to null" }}
{{- end }}
{{- $pods := $.Values.autoscaling.enabled | ternary $.Values.autoscaling.minReplicas (include "tableside.replicas" $) | int }}
{{- $least := .minAvailable | toString | trimSuffix "%" | int }}
{{- if hasSuffix "%" (.minAvailable | toString) }}
{{- $least = div (add (mul $least $pods) 99) 100 }}
{{- end }}
{{- if or (has (toString .maxUnavailable) $none) (and $pods (ge (int $least) $pods)) }}
{{- fail (printf "podDisruptionBudget would never allow evicting one of %d pods, so no node could be drained: set maxUnavailable: 1, and minAvailable: null" $pods) }}
{{- end }}
{{- end }}
{{- with .Values.strategy.rollingUpdate }}
{{- if and (has (toString .maxSurge) $none) (has (toString .maxUnavailable) $none) }}
{{- fail "strategy.rollingUpdate would never replace a pod: set maxSurge or maxUnavailable above 0" }}
{{- end }}
{{- end }}
{{- end }}

{{/* The grace period of a pod: the preStop sleep, the service's own limit for a shutdown, and a reserve. */}}
{{- define "tableside.gracePeriod" -}}
{{- $shutdown := dig "limits" "shutdown_s" 30 .Values.config }}
{{- if not (kindIs "string" $shutdown) }}
{{- $least := add .Values.preStopSleepSeconds (ceil $shutdown) }}
{{- $given := .Values.terminationGracePeriodSeconds | default (add $least 5) | int }}
{{- if le $given ($least | int) }}
{{- fail (printf "terminationGracePeriodSeconds must be above %d, the sum of preStopSleepSeconds and config.limits.shutdown_s" $least) }}
{{- end }}
{{- $given }}
{{- else }}
{{- required "terminationGracePeriodSeconds must be set if config.limits.shutdown_s is not a number" .Values.terminationGracePeriodSeconds | int }}
{{- end }}
{{- end }}
