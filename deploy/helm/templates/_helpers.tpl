{{- define "varve.labels" -}}
app.kubernetes.io/name: varve
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "varve.name" -}}
{{ .root.Release.Name }}-{{ .component }}
{{- end }}

{{/* Every pod: no rights, no writable image, no token unless it asks the Kubernetes API. */}}
{{- define "varve.pod" -}}
{{- with .root.Values.images.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "varve.container" -}}
imagePullPolicy: {{ .root.Values.images.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "varve.settings" -}}
envFrom:
  - configMapRef: {name: {{ .Release.Name }}-settings}
  - secretRef: {name: {{ .Values.secret }}}
{{- end }}

{{- define "varve.sparkEnvironment" -}}
- {name: AWS_ENDPOINT_URL, valueFrom: {configMapKeyRef: {name: {{ .Release.Name }}-settings, key: AWS_ENDPOINT_URL}}}
- {name: AWS_DEFAULT_REGION, valueFrom: {configMapKeyRef: {name: {{ .Release.Name }}-settings, key: AWS_DEFAULT_REGION}}}
{{- range .Values.sparkSecretKeys }}
- {name: {{ . }}, valueFrom: {secretKeyRef: {name: {{ $.Values.secret }}, key: {{ . }}, optional: true}}}
{{- end }}
{{- end }}

{{- define "varve.dagsterVolumes" -}}
volumes:
  - name: dagster
    configMap: {name: {{ .Release.Name }}-dagster}
  - {name: state, emptyDir: {}}
  - {name: storage, emptyDir: {}}
  - {name: tmp, emptyDir: {}}
{{- end }}

{{- define "varve.dagsterMounts" -}}
volumeMounts:
  - {name: dagster, mountPath: /srv/dagster/dagster.yaml, subPath: dagster.yaml}
  - {name: dagster, mountPath: /srv/dagster/workspace.yaml, subPath: workspace.yaml}
  - {name: storage, mountPath: /srv/dagster/storage}
  - {name: state, mountPath: /srv/state}
  - {name: tmp, mountPath: /tmp}
{{- end }}

{{- define "varve.sparkMounts" -}}
volumeMounts:
  - {name: scratch, mountPath: /srv/spark}
  - {name: tmp, mountPath: /tmp}
{{- end }}

{{- define "varve.only" -}}
podSelector: {matchLabels: {app.kubernetes.io/name: varve, app.kubernetes.io/instance: {{ .root.Release.Name }}, app.kubernetes.io/component: {{ .component }}}}
{{- end }}
