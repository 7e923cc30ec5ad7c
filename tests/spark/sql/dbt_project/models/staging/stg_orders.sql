select
    id as order_id,
    customer as customer_id,
    upper(status) as status,
    amount,
    changed_at
from {{ source('raw', 'orders') }}
