{{- define "hostelry.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "hostelry.labels" -}}
app.kubernetes.io/name: hostelry
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "hostelry.selector" -}}
app.kubernetes.io/name: hostelry
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "hostelry.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "hostelry.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "hostelry.imagePullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{- /* Probes of Ray's containers: those that KubeRay adds ask with wget, which the image has not. */}}
{{- define "hostelry.rayProbe" -}}
exec:
  command:
    - python3
    - -c
    - |-
      import urllib.request
      urllib.request.urlopen("http://127.0.0.1:52365/api/local_raylet_healthz", timeout=4)
periodSeconds: 10
timeoutSeconds: 5
failureThreshold: 6
{{- end }}
