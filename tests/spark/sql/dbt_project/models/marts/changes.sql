{{ config(materialized='incremental', incremental_strategy='append') }}
select order_id, status, changed_at
from {{ ref('stg_orders') }}
{% if is_incremental() %}
where changed_at > (select max(changed_at) from {{ this }})
{% endif %}
